"""Providers of each kind are sent the bytes that were recorded."""

import pytest

from tests.drivers.http.receiver import calling
from tests.providers.accounts import LOOPBACK, NETWORK
from tests.providers.conftest import CALL_SECONDS, Fakes, fakes, started
from tests.recorded.recorder import check
from tests.recorded.sent import provider_text

pytestmark = pytest.mark.recorded

__all__ = ["fakes", "started"]
KEY = "6650f3a1.00000007.00042~1"


async def test_calls_of_providers(fakes: Fakes) -> None:
    files = {}
    for name, kind in NETWORK.items():
        async with calling(allowed_networks=LOOPBACK, connections=0) as outgoing:
            account = kind(fakes[kind.fake_module], outgoing, CALL_SECONDS)
            await account.have_said("accepted")
            await account.open().send(account.content, account.to, KEY, lambda: True)
            arrived = (await account.fake.tell()).arrived
            await account.close()
            await account.fake.forget()
        files[f"sent/providers/{name}.txt"] = "\n\n".join(provider_text(each) for each in arrived) + "\n"
    check(files, "sent/providers")
