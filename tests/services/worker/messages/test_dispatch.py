"""Sending at an account's rate, as the provider sees it: each message once, never too fast, and nothing lost."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from math import ceil
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from services.worker.messages.dispatch import _RESERVED_AHEAD_US, DispatchEnd
from services.worker.messages.pace import AccountPace, Reserved, Wish
from shared.core.errors import Unavailable
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.messages.clock import AccountClock
from shared.messages.feeding import CredentialFeed
from shared.messages.rules.ledger import MessageState, News, hear
from shared.messages.rules.pacing import Limit, Pace, PaceGuard, Wait, reserve
from shared.messages.store_ledger import EntryChange, MessageLedger, WriteResult
from shared.store import Store
from tests.providers.fakes import FakeProcess
from tests.providers.rules import Cut, Rule
from tests.services.worker.messages.account import (
    INCARNATION,
    JOB,
    UNHURRIED,
    account_at,
    most_in_a_second,
    used_share,
)
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.sending, pytest.mark.native]

unhurried = partial(account_at, guard=UNHURRIED)

NOW = datetime(2026, 12, 24, tzinfo=UTC)
SLOW = Rule(status=202, delay_seconds=0.2)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Until this is set, no answer of the provider is heard."""
    event = asyncio.Event()

    async def hold_answers(point: str) -> None:
        if point == "message.after_call":
            await event.wait()

    monkeypatch.setattr("services.worker.messages.dispatch.fault", hold_answers)
    return event


def has_calls(fake: FakeProcess, count: int) -> Callable[[], Awaitable[bool]]:
    """Whether the provider has had so many."""

    async def has() -> bool:
        return len((await fake.tell()).arrived) >= count

    return has


def has_most(fake: FakeProcess, most: int) -> Callable[[], Awaitable[bool]]:
    """Whether so many calls were under way at the same time."""

    async def has() -> bool:
        return (await fake.tell()).counts.most >= most

    return has


async def reserve_once_it_is_granted(pace: AccountPace, clock: AccountClock, wish: Wish) -> Reserved:
    async def reserve() -> Reserved | None:
        await clock.look()
        got = await pace.reserve(wish)
        return None if isinstance(got, Wait) else got

    reserved: Reserved = await until(reserve)
    return reserved


async def end_of(sending: "asyncio.Task[DispatchEnd]") -> DispatchEnd:
    return await asyncio.wait_for(sending, SECONDS)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("rate", "count", "answering"), [(1.5, 6, None), (10, 40, SLOW), (100, 400, None), (100, 400, SLOW)]
)
async def test_the_rate_is_used_and_never_exceeded(
    store: Store, fake: FakeProcess, rate: float, count: int, answering: Rule | None
) -> None:
    """What the fake notes late seems to come too fast: so twice the rate is let pass here."""
    async with account_at(store, fake, rate=rate, answering=answering) as account:
        worker = await account.worker(0)
        assert await worker.start(account.messages(0, count)) is DispatchEnd.DONE
        arrivals = await account.arrivals()
        assert Counter(message for _, message in arrivals) == {one.message.id: 1 for one in account.messages(0, count)}
        assert most_in_a_second(arrivals) <= ceil(rate * 2) + 1
        assert used_share(arrivals, rate) > 0.04
        assert await account.tally() == {"sent": count}


async def test_three_workers_share_one_rate(store: Store, fake: FakeProcess) -> None:
    async with unhurried(store, fake, rate=100) as account:
        workers = [await account.worker(ordinal) for ordinal in range(3)]
        ends = await asyncio.gather(*(each.start(account.messages(n, 60)) for n, each in enumerate(workers)))
        arrivals = await account.arrivals()
        assert ends == [DispatchEnd.DONE] * 3
        assert len({message for _, message in arrivals}) == len(arrivals) == 180
        assert await account.tally() == {"sent": 180}


@pytest.mark.parametrize("rate", [10.0, 30.0, 100.0, 500.0, 2_500.0])
def test_an_older_batch_asks_before_a_younger_one_may(rate: float) -> None:
    """Again and again, until the older one has instants for all its messages."""
    ask = partial(reserve, rate=rate, count=10_000, clock="c", ahead_us=80_000, guard=PaceGuard())
    got = ask(Pace(clock="c"), now_us=0)
    for _ in range(10):
        assert not isinstance(got, Wait)
        pace, grant = got
        asks_us = grant.last_us - _RESERVED_AHEAD_US
        if isinstance(got := ask(pace, now_us=asks_us), Wait):
            asks_us = got.until_us
            got = ask(pace, now_us=asks_us)
        younger = ask(pace, now_us=asks_us, behind=True)
        assert isinstance(younger, Wait)
        assert younger.until_us - asks_us >= 80_000, "this much later may the older one be"


async def test_who_waits_long_keeps_the_place(store: Store, fake: FakeProcess) -> None:
    """Each of three waits for longer than a call may last until its turn comes."""
    async with unhurried(store, fake, rate=0.9, call_us=3_000_000) as account:
        workers = [await account.worker(ordinal) for ordinal in range(3)]
        ends = await asyncio.gather(*(each.start(account.messages(n, 3)) for n, each in enumerate(workers)))
        assert ends == [DispatchEnd.DONE] * 3
        assert await account.tally() == {"sent": 9}


async def test_a_new_rate_acts_on_a_batch_that_is_being_sent(store: Store, fake: FakeProcess) -> None:
    """At one a second its 120 messages would take three minutes."""
    async with unhurried(store, fake, rate=1) as account:
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 120))
        await until(has_calls(fake, 2))
        await account.change(rate=100.0, max_in_flight=50)
        assert await end_of(sending) is DispatchEnd.DONE
        assert await account.tally() == {"sent": 120}


async def test_stopped_messages_are_unsent_and_nobody_else_waits(store: Store, fake: FakeProcess) -> None:
    async with unhurried(store, fake, rate=10) as account:
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 500))
        await until(has_calls(fake, 5))
        worker.dispatch.stop()
        assert await end_of(sending) is DispatchEnd.STOPPED
        called = len(await account.arrivals())
        states = Counter(await account.states(0))
        assert states.pop(MessageState.UNSENT, 0) <= 20, "no more are written ahead than there are instants"
        assert states == {MessageState.SENT: called}
        assert await account.tally() == {"sent": called}


async def test_of_what_broke_off_nobody_can_tell(store: Store, fake: FakeProcess) -> None:
    async with unhurried(store, fake, rate=50) as account:
        await fake.answer(
            Rule(status=202), Rule(cut=Cut.CALL), Rule(status=400), Rule(status=503), always=Rule(status=202)
        )
        worker = await account.worker(0)
        assert await worker.start(account.messages(0, 6)) is DispatchEnd.DONE
        states = Counter(await account.states(0))
        assert states == {
            MessageState.SENT: 3,
            MessageState.UNKNOWN: 1,
            MessageState.FAILED: 1,
            MessageState.UNSENT: 1,
        }


async def test_too_fast_holds_the_account_back(store: Store, fake: FakeProcess) -> None:
    async with unhurried(store, fake, rate=20) as account:
        await fake.answer(Rule(status=429, headers={"Retry-After": "3"}), always=Rule(status=202))
        worker = await account.worker(0)
        assert await worker.start(account.messages(0, 12)) is DispatchEnd.DONE
        traffic = await store.credentials.get_traffic(account.credential_id)
        assert traffic is not None
        assert traffic.pace.strikes == 1
        moments = sorted(moment for moment, _ in await account.arrivals())
        assert max(after - before for before, after in itertools.pairwise(moments)) > 1e9


async def test_a_clock_that_was_put_right_holds_nobody(store: Store, fake: FakeProcess) -> None:
    """The last grant is of the time when the database's clock was an hour ahead; nobody sent when it was set back."""
    async with unhurried(store, fake, rate=50) as account:
        worker = await account.worker(0)
        now, traffic = worker.clock.read(), await store.credentials.get_traffic(account.credential_id)
        assert traffic is not None
        later = replace(traffic.pace, seq=traffic.pace.seq + 1, clock=now.clock, last_us=now.now_us + 3_600_000_000)
        assert await store.credentials.change_traffic(account.credential_id, traffic.pace.seq, later, traffic.places)
        sending = worker.start(account.messages(0, 3))
        assert await end_of(sending) is DispatchEnd.DONE


async def test_a_refused_login_ends_it(store: Store, fake: FakeProcess) -> None:
    async with unhurried(store, fake, rate=10, answering=Rule(status=401)) as account:
        worker = await account.worker(0)
        assert await worker.start(account.messages(0, 500)) is DispatchEnd.REJECTED
        assert set(await account.states(0)) == {MessageState.UNSENT}
        assert len(await account.arrivals()) < 500


async def test_who_lost_the_batch_calls_nobody_more(store: Store, fake: FakeProcess) -> None:
    async with unhurried(store, fake, rate=10) as account:
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 500))
        await until(has_calls(fake, 3))
        await store._database["batches"].update_one({"_id": worker.batch.id}, {"$set": {"owner": "somebody"}})
        assert await end_of(sending) is DispatchEnd.TAKEN
        assert len(await account.arrivals()) < 500


async def test_who_lost_the_place_sends_nothing_more(store: Store, fake: FakeProcess) -> None:
    async with unhurried(store, fake, rate=10) as account:
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 500))
        await until(has_calls(fake, 1))
        await account.take_place(worker.batch.id)
        assert await end_of(sending) is DispatchEnd.FORBIDDEN
        assert len(await account.arrivals()) < 500


async def test_a_callback_that_is_faster_than_the_answer_stays(
    store: Store, fake: FakeProcess, answered: asyncio.Event
) -> None:
    async with unhurried(store, fake, rate=50) as account:
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 1))
        await until(has_calls(fake, 1))
        [entry] = (await store.messages.read_batch(INCARNATION, 0)).values()
        delivered = hear(entry, News(state=MessageState.DELIVERED, at=NOW, attempt=1))
        assert delivered is not None
        assert await store.messages.fold([EntryChange(entry, delivered)]) is WriteResult.DONE
        answered.set()
        assert await end_of(sending) is DispatchEnd.DONE
        assert await account.states(0) == [MessageState.DELIVERED]
        assert (await store.message_sums.count(JOB)).tally == {"delivered": 1}


class SlowLedger:
    """The ledger of a store that takes its time."""

    def __init__(self, ledger: MessageLedger, seconds: float) -> None:
        self._ledger = ledger
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def write(self, *arguments: Any, **named: Any) -> WriteResult:
        await asyncio.sleep(self._seconds)
        return await self._ledger.write(*arguments, **named)


async def test_a_store_that_is_slow_slows_down_and_stops_nothing(store: Store, fake: FakeProcess) -> None:
    async with unhurried(store, fake, rate=200) as account:
        worker = await account.worker(0)
        slow = SimpleNamespace(messages=SlowLedger(store.messages, 0.5), suppressions=store.suppressions)
        worker.dispatch._writer._store = cast("Store", slow)
        sending = worker.start(account.messages(0, 150))
        assert await end_of(sending) is DispatchEnd.DONE
        assert Counter(await account.states(0)) == {MessageState.SENT: 150}
        assert len(await account.arrivals()) == 150


async def test_answers_are_recorded_though_nothing_can_be_reserved_for_a_moment(
    store: Store, fake: FakeProcess
) -> None:
    """The store is away while calls are under way: `reserve` raises, and the answers of those calls are lost."""
    async with unhurried(store, fake, rate=20, answering=Rule(status=202, delay_seconds=1.0)) as account:
        worker = await account.worker(0)
        pace: Any = worker.dispatch._pace
        reserve = pace.reserve

        async def fail_later(wish: Any) -> Any:
            if len((await fake.tell()).arrived) >= 5:
                raise Unavailable("MongoDB cannot be reached")
            return await reserve(wish)

        pace.reserve = fail_later
        sending = worker.start(account.messages(0, 100))
        await until(has_calls(fake, 5))
        await asyncio.sleep(1.5)
        worker.dispatch.stop()
        assert await end_of(sending) is DispatchEnd.STOPPED
        states = Counter(await account.states(0))
        assert MessageState.SENDING not in states, states


async def test_sending_ends_though_the_last_answer_slows_the_account_for_long(
    store: Store, fake: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is recorded before its call has ended: nobody was told of that end."""
    async with unhurried(store, fake, rate=20, answering=Rule(status=429)) as account:
        worker = await account.worker(0)
        pace: Any = worker.dispatch._pace
        slow_down = pace.slow_down

        async def slow_down_late(**asked: Any) -> None:
            await asyncio.sleep(0.5)
            await slow_down(**asked)

        monkeypatch.setattr(pace, "slow_down", slow_down_late)
        sending = worker.start(account.messages(0, 1))
        assert await end_of(sending) is DispatchEnd.DONE


async def test_no_more_calls_are_under_way_than_the_account_may_have(store: Store, fake: FakeProcess) -> None:
    """The first worker has them all when the second one comes, and its place then tells of half of them only."""
    async with unhurried(store, fake, rate=100, answering=Rule(status=202, delay_seconds=2)) as account:
        await account.change(max_in_flight=20)
        first, second = await account.worker(0), await account.worker(1)
        await account.take_place(second.batch.id)
        sending = [first.start(account.messages(0, 300))]
        await until(has_calls(fake, 15))
        await account.give_place(second.batch.id, now_us=second.clock.now_us())
        sending.append(second.start(account.messages(1, 300)))
        await until(has_calls(fake, 50))
        first.dispatch.stop()
        second.dispatch.stop()
        await asyncio.gather(*map(end_of, sending))
        most = (await fake.tell()).counts.most
        assert most <= 20, f"{most} calls were under way"


async def test_a_lower_limit_of_calls_acts_and_sending_goes_on(store: Store, fake: FakeProcess) -> None:
    """Those under way end; as many as are allowed now follow."""
    async with unhurried(store, fake, rate=100, answering=Rule(status=202, delay_seconds=0.3)) as account:
        await account.change(max_in_flight=20)
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 5_000))
        await until(has_most(fake, 19))
        await account.change(max_in_flight=3)

        async def few_are_under_way() -> bool:
            await fake.forget()
            await until(has_calls(fake, 10))
            return (await fake.tell()).counts.most <= 3

        await until(few_are_under_way)
        worker.dispatch.stop()
        assert await end_of(sending) is DispatchEnd.STOPPED


async def test_calls_of_a_lost_worker_count_for_who_takes_over(store: Store, fake: FakeProcess) -> None:
    slow = Rule(status=202, delay_seconds=1.5)
    async with unhurried(store, fake, rate=100, answering=slow, call_us=6_000_000) as account:
        await account.change(max_in_flight=20)
        lost = await account.worker(0)
        sending = lost.start(account.messages(0, 300))
        await until(has_most(fake, 19))
        await account.take_over(lost.batch.id, now_us=lost.clock.now_us())
        pace = account.pace(lost.batch.id, lost.clock)
        wish = Wish(count=100, left=100, ahead_us=80_000, lasting_us=1_500_000)

        async def not_bounded_by_the_rate() -> Reserved | Wait | None:
            await lost.clock.look()
            got = await pace.reserve(wish)
            return None if isinstance(got, Wait) and got.limit is Limit.RATE else got

        got = await until(not_bounded_by_the_rate)
        assert isinstance(got, Wait)
        assert got.limit is Limit.IN_FLIGHT
        lost.dispatch.stop()
        await end_of(sending)
        reserved = await reserve_once_it_is_granted(pace, lost.clock, wish)
        assert reserved.calls >= 10, "they count until the time of the lost one is over"


async def test_who_was_overtaken_changes_no_place(store: Store, fake: FakeProcess) -> None:
    """It was frozen while another worker took the batch, and is to count none of that one's calls as its own."""
    async with unhurried(store, fake, rate=100) as account:
        frozen = await account.worker(0)
        holder, clock = frozen.batch.id, frozen.clock
        await account.take_over(holder, now_us=clock.now_us(), turn=2)
        wish = Wish(count=10, left=10, ahead_us=80_000, lasting_us=500_000)
        got = await reserve_once_it_is_granted(account.pace(holder, clock, turn=2), clock, wish)
        assert await frozen.start(account.messages(0, 5)) is DispatchEnd.FORBIDDEN
        await CredentialFeed(store, MemoryBroker()).leave(account.credential_id, holder, turn=1)
        place = await account.place_of(holder)
        assert (place.turn, place.calls) == (2, got.calls)
        assert await account.arrivals() == []


async def test_a_place_is_yielded_at_once_however_long_a_call_lasts(
    store: Store, fake: FakeProcess, answered: asyncio.Event
) -> None:
    async with unhurried(store, fake, rate=100) as account:
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 500))
        await until(has_calls(fake, 15))
        await account.have_yield(worker.batch.id)

        async def ends() -> bool:
            return (await account.place_of(worker.batch.id)).ends

        await until(ends)
        assert not sending.done(), "calls are under way"
        assert (await account.place_of(worker.batch.id)).calls > 0
        answered.set()
        assert await end_of(sending) is DispatchEnd.YIELDED
        states = Counter(await account.states(0))
        assert set(states) <= {MessageState.SENT, MessageState.UNSENT}
