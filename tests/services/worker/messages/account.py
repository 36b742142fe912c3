"""An account at a provider that runs as a process, and batches of messages for it, on a real store."""

import asyncio
import itertools
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil

from msgspec.structs import replace

from services.worker.messages.dispatch import Dispatch, DispatchEnd
from services.worker.messages.entries import EntryWriter, Prepared
from services.worker.messages.pace import AccountPace, Speed
from shared.audience.rules.audiences import KeyRange
from shared.drivers.http.client import HttpOutgoing
from shared.jobs.rules.batches import Batch, BatchStatus
from shared.messages.clock import LOOK_SECONDS, AccountClock
from shared.messages.rules.credentials import Credential
from shared.messages.rules.ledger import Message, MessageState, entry_id
from shared.messages.rules.pacing import PaceGuard
from shared.messages.rules.places import AccountPlace, Places, enter, leave, take_over
from shared.providers import Provider, ProviderRules
from shared.providers.http import HttpKind
from shared.runtime.loops import pause
from shared.store import Store
from tests.providers.fakes import FakeProcess
from tests.providers.rules import Rule
from tests.waiting import SECONDS

JOB, INCARNATION = "job.abc", "abc"
CALL_US = 10_000_000
UNHURRIED = PaceGuard(late_us=300_000, clock_us=200_000)
"""So wide that a slow machine loses no instant."""

_SECOND_NS = 10**9
_GIVEN_US = 60_000_000
_credentials = itertools.count()


@dataclass
class Worker:
    """One sender of one batch, as a worker process would have it."""

    account: "Account"
    batch: Batch
    dispatch: Dispatch
    clock: AccountClock

    def start(self, messages: list[Prepared]) -> "asyncio.Task[DispatchEnd]":
        return asyncio.create_task(self._run(messages))

    async def _run(self, messages: list[Prepared]) -> DispatchEnd:
        over = asyncio.Event()
        looking = asyncio.create_task(self._look_until(over))
        try:
            return await self.dispatch.run(messages)
        finally:
            over.set()
            await asyncio.wait((looking,), timeout=SECONDS)

    async def _look_until(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self.clock.look()
            await pause(over, LOOK_SECONDS)


@dataclass
class Account:
    store: Store
    fake: FakeProcess
    provider: Provider
    credential_id: str
    guard: PaceGuard
    call_us: int

    async def worker(self, ordinal: int, *, owner: str = "") -> Worker:
        """A sender of a batch of its own, with a place."""
        owner = owner or f"w{ordinal}"
        batch = Batch(
            job_id=JOB, ordinal=ordinal, range=KeyRange(0, 9), size=9, status=BatchStatus.SENDING, owner=owner, turn=1
        )
        assert await self.store.batches.add_page([batch])
        clock = AccountClock(self.store)
        await clock.look()
        await self.give_place(batch.id, now_us=clock.now_us())
        writer = EntryWriter(self.store, batch_id=batch.id, owner=owner)
        pace = self.pace(batch.id, clock)
        dispatch = Dispatch(pace, writer, self.provider, clock, self.guard, call_us=self.call_us, speed=Speed())
        return Worker(self, batch, dispatch, clock)

    def pace(self, holder: str, clock: AccountClock, *, turn: int = 0) -> AccountPace:
        return AccountPace(
            self.store.credentials,
            clock,
            self.guard,
            credential_id=self.credential_id,
            holder=holder,
            turn=turn,
            call_us=self.call_us,
        )

    async def give_place(self, holder: str, *, now_us: int) -> None:
        until = now_us + _GIVEN_US
        await self._change_places(lambda places: enter(places, holder, (0.0, 1, JOB), until_us=until, most=32))

    async def take_over(self, holder: str, *, now_us: int, turn: int = 0) -> None:
        until = now_us + _GIVEN_US
        await self._change_places(lambda places: take_over(places, holder, until_us=until, turn=turn))

    async def have_yield(self, holder: str) -> None:
        await self._change_places(
            lambda places: tuple(replace(place, yields=place.holder == holder) for place in places)
        )

    async def place_of(self, holder: str) -> AccountPlace:
        traffic = await self.store.credentials.get_traffic(self.credential_id)
        assert traffic is not None
        return next(place for place in traffic.places if place.holder == holder)

    async def take_place(self, holder: str) -> None:
        await self._change_places(lambda places: leave(places, holder))

    async def _change_places(self, change: Callable[[Places], Places | None]) -> None:
        while True:
            traffic = await self.store.credentials.get_traffic(self.credential_id)
            assert traffic is not None
            places, pace = change(traffic.places), replace(traffic.pace, seq=traffic.pace.seq + 1)
            assert places is not None
            if await self.store.credentials.change_traffic(self.credential_id, traffic.pace.seq, pace, places):
                return

    async def change(self, **fields: object) -> None:
        """What people may change of the account."""
        credential = await self.store.credentials.get(self.credential_id)
        assert credential is not None
        assert await self.store.credentials.change(credential, replace(credential, **fields))

    def messages(self, ordinal: int, count: int) -> list[Prepared]:
        return [Prepared(self._message(ordinal, row), {"text": "hi"}) for row in range(count)]

    def _message(self, ordinal: int, row: int) -> Message:
        return Message(
            id=entry_id(INCARNATION, ordinal, row),
            app_id="app",
            credential_id=self.credential_id,
            to=f"ana{row}@example.com",
        )

    async def arrivals(self) -> list[tuple[int, str]]:
        """When the provider had the first byte of each call (ns), and the message's id."""
        told = await self.fake.tell()
        return [(one.began_ns, one.headers["carillon-message"].partition("~")[0]) for one in told.arrived]

    async def states(self, *ordinals: int) -> list[MessageState]:
        entries = [await self.store.messages.read_batch(INCARNATION, ordinal) for ordinal in ordinals]
        return [entry.state for batch in entries for entry in batch.values()]

    async def tally(self) -> dict[str, int]:
        return (await self.store.message_sums.count(JOB)).tally


@asynccontextmanager
async def account_at(
    store: Store,
    fake: FakeProcess,
    *,
    rate: float,
    answering: Rule | None = None,
    guard: PaceGuard | None = None,
    call_us: int = CALL_US,
) -> AsyncIterator[Account]:
    """An account with this rate, at a provider that answers so."""
    await fake.forget()
    await fake.answer(always=answering or Rule(status=202))
    outgoing = HttpOutgoing.open(allowed_networks=("127.0.0.0/8",), timeout_seconds=call_us / 1e6, connections=0)
    rules = ProviderRules(call_seconds=call_us / 1e6, allowed_networks=("127.0.0.0/8",))
    now = datetime(2026, 12, 24, tzinfo=UTC)
    name = f"post-{next(_credentials)}"
    credential = Credential(
        id=name, app_id="app", name=name, kind="http", fields={}, rate=rate, max_in_flight=max(ceil(rate / 2), 20),
        test_recipient="ana@example.com", created_by="ana", created_at=now, updated_at=now,
    )  # fmt: skip
    assert await store.credentials.add(credential)
    secret = {"signingSecret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
    provider = HttpKind(rules).open({"url": f"{fake.url}/send"}, secret, outgoing)
    try:
        yield Account(store, fake, provider, name, guard or PaceGuard(), call_us)
    finally:
        with suppress(Exception):
            await provider.close()
        await outgoing.close()


def most_in_a_second(arrivals: list[tuple[int, str]]) -> int:
    """The most calls that the provider saw within any second."""
    moments = sorted(moment for moment, _ in arrivals)
    return max(bisect_left(moments, first + _SECOND_NS) - index for index, first in enumerate(moments))


def used_share(arrivals: list[tuple[int, str]], rate: float) -> float:
    """The share of the rate that was used between the first call and the last."""
    moments = sorted(moment for moment, _ in arrivals)
    return (len(moments) - 1) / ((moments[-1] - moments[0]) / _SECOND_NS * rate)
