"""A credential of each kind on the network is made by the API, with a test message that the provider takes as it is."""

import pytest

from tests.drivers.http.receiver import calling
from tests.providers.accounts import NETWORK
from tests.providers.fakes import fake_process
from tests.services.api.messages.conftest import Desk
from tests.tiers import and_rarely

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


@pytest.mark.parametrize("name", and_rarely("http", "smtp", rarely=sorted(NETWORK.keys() - {"http", "smtp"})))
async def test_its_test_message_arrives(desk: Desk, name: str) -> None:
    kind = NETWORK[name]
    app_id = await desk.house.app()
    async with fake_process(kind.fake_module) as fake, calling() as outgoing:
        account = kind(fake, outgoing, 1.0)
        await account.have_said("accepted")
        body = {
            "name": "main",
            "kind": account.kind.name,
            "fields": dict(account.fields),
            "secret": dict(account.secret),
            "testRecipient": account.to,
        }
        made = await desk.admin.post(f"/apps/{app_id}/credentials", body)
        assert made.status == 201, made.body
        assert made.json["onUnknown"] == ("retry" if name in {"apns", "fcm"} else "hold")
        hidden = [secret for secret in account.secrets if secret not in str(account.fields)]
        assert hidden and not any(secret in made.body.decode() for secret in hidden)
        assert len((await fake.tell()).arrived) == 1
        tested = await desk.admin.post(f"/apps/{app_id}/credentials/{made.json['id']}/test")
        assert tested.status < 300, tested.body
        assert len((await fake.tell()).arrived) == 2
