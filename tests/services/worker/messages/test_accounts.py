"""What a worker keeps open to send by: accounts, and the clock of their rates."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.worker.messages import opening
from services.worker.messages.opening import OpenAccounts
from services.worker.messages.pace import KeptClock
from shared.messages.clock import AccountClock
from shared.messages.rules.answers import Answer, CallAccepted
from shared.messages.rules.credentials import Credential
from shared.providers import BeforeBytes, Content
from shared.store import Store
from tests.clocks import ManualClock
from tests.waiting import until

pytestmark = pytest.mark.sending


class SlowlyClosed:
    """An account that takes a while to be closed, as one that says goodbye to a mail server."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        self.goodbye = asyncio.Event()

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        assert not self.closing.is_set(), "it is closed, or being closed"
        return CallAccepted()

    async def close(self) -> None:
        self.closing.set()
        await self.goodbye.wait()


def credential(name: str) -> Credential:
    at = ManualClock().now()
    return Credential(
        id=name, app_id="app", name=name, kind="smtp", fields={}, rate=10, max_in_flight=20,
        test_recipient="t@example.com", created_by="a", created_at=at, updated_at=at,
    )  # fmt: skip


async def test_what_is_used_again_while_others_are_closed_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[SlowlyClosed] = []

    def open_account(_: Credential) -> SlowlyClosed:
        opened.append(SlowlyClosed())
        return opened[-1]

    kept = OpenAccounts(open_account)

    async def use(name: str) -> None:
        async with kept.use(credential(name)):
            pass

    await use("one")
    await use("two")
    monkeypatch.setattr(opening, "_KEPT", 0)
    closing = asyncio.create_task(use("three"))  # behind it all three are idle, and too many
    await opened[0].closing.wait()
    async with kept.use(credential("two")) as provider:
        opened[0].goodbye.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert await provider.send({}, "ana", "m~1", lambda: True) == CallAccepted()
        for one in opened:
            one.goodbye.set()
        await closing


class FailingOnce:
    """The time of this process, but for one look."""

    def __init__(self) -> None:
        self.fails = False
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        if self.fails:
            self.fails = False
            raise RuntimeError("nobody expected this")
        return asyncio.get_running_loop().time()


@pytest_asyncio.fixture
async def store(mongo_database: str) -> AsyncIterator[Store]:
    opened = Store.open(mongo_database)
    yield opened
    await opened.close()


@pytest.mark.native
async def test_a_clock_outlives_what_nobody_expected(store: Store) -> None:
    monotonic = FailingOnce()
    async with KeptClock(AccountClock(store, monotonic=monotonic), allowed_us=5_000).keep():
        monotonic.fails = True

        async def has_failed() -> bool:
            return not monotonic.fails

        await until(has_failed)
        looks = monotonic.looks

        async def is_looked_at() -> bool:
            return monotonic.looks > looks + 3

        await until(is_looked_at)
