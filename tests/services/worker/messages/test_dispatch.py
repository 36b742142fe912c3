"""Sending at an account's rate, as the provider sees it: each message once, never too fast, and nothing lost."""

import asyncio
import itertools
from collections import Counter
from datetime import UTC, datetime
from math import ceil
from typing import Any, cast

import pytest
from msgspec.structs import replace

from services.worker.messages.dispatch import DispatchEnd
from services.worker.messages.pace import Wish
from shared.broker.memory import MemoryBroker
from shared.domain.errors import Unavailable
from shared.domain.messages.ledger import MessageState, News, hear
from shared.domain.messages.pacing import Limit, Wait
from shared.flow.messages.feeding import CredentialFeed
from shared.store import Store
from shared.store.messages.ledger import EntryChange, MessageLedger, WriteResult
from tests.providers.fakes import FakeProcess
from tests.providers.rules import Cut, Rule
from tests.services.worker.messages.account import INCARNATION, JOB, account_at, most_in_a_second, used_share

pytestmark = pytest.mark.native


NOW = datetime(2026, 12, 24, tzinfo=UTC)
SLOW = Rule(status=202, delay_seconds=0.2)


def most_seen_at(rate: float) -> int:
    """How many calls the fake may note within a second, beside other tests: it notes some of them late. What the
    promise says without that is measured on a machine with nothing else to do."""
    return ceil(rate * 1.1) + 1


@pytest.mark.parametrize(
    ("rate", "count", "answering"), [(1.5, 6, None), (10, 40, SLOW), (100, 400, None), (100, 400, SLOW)]
)
async def test_the_rate_is_used_and_never_exceeded(
    store: Store, fake: FakeProcess, rate: float, count: int, answering: Rule | None
) -> None:
    async with account_at(store, fake, rate=rate, answering=answering) as account:
        worker = await account.worker(0)
        assert await worker.start(account.messages(0, count)) is DispatchEnd.DONE
        arrivals = await account.arrivals()
        assert Counter(message for _, message in arrivals) == {one.message.id: 1 for one in account.messages(0, count)}
        assert most_in_a_second(arrivals) <= most_seen_at(rate)
        assert used_share(arrivals, rate) > 0.4
        assert await account.tally() == {"sent": count}


async def test_three_workers_share_one_rate(store: Store, fake: FakeProcess) -> None:
    async with account_at(store, fake, rate=50) as account:
        workers = [await account.worker(ordinal) for ordinal in range(3)]
        ends = await asyncio.gather(*(each.start(account.messages(n, 60)) for n, each in enumerate(workers)))
        arrivals = await account.arrivals()
        assert ends == [DispatchEnd.DONE] * 3
        assert len({message for _, message in arrivals}) == len(arrivals) == 180
        assert most_in_a_second(arrivals) <= most_seen_at(50)
        assert await account.tally() == {"sent": 180}


async def test_who_waits_long_keeps_the_place(store: Store, fake: FakeProcess) -> None:
    """Each of three waits for longer than a call may last until its turn comes."""
    async with account_at(store, fake, rate=0.9) as account:
        workers = [await account.worker(ordinal) for ordinal in range(3)]
        ends = await asyncio.gather(*(each.start(account.messages(n, 3)) for n, each in enumerate(workers)))
        assert ends == [DispatchEnd.DONE] * 3
        assert await account.tally() == {"sent": 9}


async def test_a_new_rate_acts_within_two_seconds(store: Store, fake: FakeProcess) -> None:
    async with account_at(store, fake, rate=20) as account:
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 120))
        await asyncio.sleep(2)
        await account.change(rate=100.0, max_in_flight=50)
        assert await sending is DispatchEnd.DONE
        arrivals = await account.arrivals()
        assert most_in_a_second(arrivals) <= most_seen_at(100)
        moments = [moment for moment, _ in arrivals]
        assert max(moments) - min(moments) < 5.5e9


async def test_stopped_messages_are_unsent_and_nobody_else_waits(store: Store, fake: FakeProcess) -> None:
    async with account_at(store, fake, rate=10) as account:
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 100))
        while len(await account.arrivals()) < 5:
            await asyncio.sleep(0.05)
        worker.dispatch.stop()
        assert await sending is DispatchEnd.STOPPED
        called = len(await account.arrivals())
        states = Counter(await account.states(0))
        assert states.pop(MessageState.UNSENT, 0) <= 3
        assert states == {MessageState.SENT: called}
        assert await account.tally() == {"sent": called}


async def test_of_what_broke_off_nobody_can_tell(store: Store, fake: FakeProcess) -> None:
    async with account_at(store, fake, rate=50) as account:
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
    async with account_at(store, fake, rate=20) as account:
        await fake.answer(Rule(status=429, headers={"Retry-After": "2"}), always=Rule(status=202))
        worker = await account.worker(0)
        assert await worker.start(account.messages(0, 12)) is DispatchEnd.DONE
        traffic = await store.credentials.get_traffic(account.credential_id)
        assert traffic is not None
        assert traffic.pace.strikes == 1
        moments = sorted(moment for moment, _ in await account.arrivals())
        assert max(after - before for before, after in itertools.pairwise(moments)) > 1.5e9


async def test_a_clock_that_was_put_right_holds_nobody(store: Store, fake: FakeProcess) -> None:
    """The last grant is of the time when the database's clock was an hour ahead; nobody sent when it was set back."""
    async with account_at(store, fake, rate=50) as account:
        worker = await account.worker(0)
        now, traffic = worker.clock.read(), await store.credentials.get_traffic(account.credential_id)
        assert traffic is not None
        later = replace(traffic.pace, seq=traffic.pace.seq + 1, clock=now.clock, last_us=now.now_us + 3_600_000_000)
        assert await store.credentials.change_traffic(account.credential_id, traffic.pace.seq, later, traffic.places)
        assert await asyncio.wait_for(worker.start(account.messages(0, 3)), 20) is DispatchEnd.DONE


async def test_a_refused_login_ends_it(store: Store, fake: FakeProcess) -> None:
    async with account_at(store, fake, rate=10, answering=Rule(status=401)) as account:
        worker = await account.worker(0)
        assert await worker.start(account.messages(0, 50)) is DispatchEnd.REJECTED
        assert set(await account.states(0)) == {MessageState.UNSENT}
        assert len(await account.arrivals()) <= 3


async def test_who_lost_the_batch_calls_nobody_more(store: Store, fake: FakeProcess) -> None:
    async with account_at(store, fake, rate=20) as account:
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 100))
        while len(await account.arrivals()) < 3:
            await asyncio.sleep(0.02)
        await store._database["batches"].update_one({"_id": worker.batch.id}, {"$set": {"owner": "somebody"}})
        assert await sending is DispatchEnd.TAKEN
        assert len(await account.arrivals()) < 20


async def test_who_lost_the_place_sends_nothing_more(store: Store, fake: FakeProcess) -> None:
    async with account_at(store, fake, rate=10) as account:
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 200))
        while not await account.arrivals():
            await asyncio.sleep(0.02)
        await account.take_place(worker.batch.id)
        assert await asyncio.wait_for(sending, 10) is DispatchEnd.FORBIDDEN
        assert len(await account.arrivals()) < 50


async def test_a_callback_that_is_faster_than_the_answer_stays(store: Store, fake: FakeProcess) -> None:
    async with account_at(store, fake, rate=50, answering=Rule(status=202, delay_seconds=0.5)) as account:
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 1))
        while not await account.arrivals():
            await asyncio.sleep(0.02)
        [entry] = (await store.messages.read_batch(INCARNATION, 0)).values()
        delivered = hear(entry, News(state=MessageState.DELIVERED, at=NOW, attempt=1))
        assert delivered is not None
        assert await store.messages.fold([EntryChange(entry, delivered)]) is WriteResult.DONE
        assert await sending is DispatchEnd.DONE
        assert await account.states(0) == [MessageState.DELIVERED]
        assert await store.messages.count_job(JOB, INCARNATION) == {"delivered": 1}


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
    async with account_at(store, fake, rate=200) as account:
        worker = await account.worker(0)
        worker.dispatch._writer._ledger = cast("MessageLedger", SlowLedger(store.messages, 0.5))
        async with asyncio.timeout(20):
            assert await worker.start(account.messages(0, 300)) is DispatchEnd.DONE
        assert Counter(await account.states(0)) == {MessageState.SENT: 300}
        assert len(await account.arrivals()) == 300


async def test_answers_are_recorded_though_nothing_can_be_reserved_for_a_moment(
    store: Store, fake: FakeProcess
) -> None:
    """The store is away while calls are under way: `reserve` raises, and the answers of those calls are lost."""
    async with account_at(store, fake, rate=20, answering=Rule(status=202, delay_seconds=1.0)) as account:
        worker = await account.worker(0)
        pace: Any = worker.dispatch._pace
        reserve = pace.reserve

        async def fail_later(wish: Any) -> Any:
            if len((await fake.tell()).arrived) >= 5:
                raise Unavailable("MongoDB cannot be reached")
            return await reserve(wish)

        pace.reserve = fail_later
        sending = worker.start(account.messages(0, 100))
        while len((await fake.tell()).arrived) < 5:
            await asyncio.sleep(0.02)
        await asyncio.sleep(1.5)
        worker.dispatch.stop()
        assert await sending is DispatchEnd.STOPPED
        states = Counter(await account.states(0))
        assert MessageState.SENDING not in states, states


async def test_sending_ends_though_the_last_answer_slows_the_account_for_long(
    store: Store, fake: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is recorded before its call has ended: nobody was told of that end."""
    async with account_at(store, fake, rate=20, answering=Rule(status=429)) as account:
        worker = await account.worker(0)
        pace: Any = worker.dispatch._pace
        slow_down = pace.slow_down

        async def slow_down_late(**asked: Any) -> None:
            await asyncio.sleep(0.5)
            await slow_down(**asked)

        monkeypatch.setattr(pace, "slow_down", slow_down_late)
        async with asyncio.timeout(10):
            assert await worker.start(account.messages(0, 1)) is DispatchEnd.DONE


async def test_no_more_calls_are_under_way_than_the_account_may_have(
    store: Store, fake: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker has them all when the second one comes, and its place then tells of half of them only."""
    monkeypatch.setattr("tests.services.worker.messages.account.CALL_US", 8_000_000)
    async with account_at(store, fake, rate=100, answering=Rule(status=202, delay_seconds=5)) as account:
        await account.change(max_in_flight=20)
        first, second = await account.worker(0), await account.worker(1)
        await account.take_place(second.batch.id)
        sending = [first.start(account.messages(0, 300))]
        while len((await fake.tell()).arrived) < 15:
            await asyncio.sleep(0.02)
        await account.give_place(second.batch.id, now_us=second.clock.now_us())
        sending.append(second.start(account.messages(1, 300)))
        await asyncio.sleep(4)
        first.dispatch.stop()
        second.dispatch.stop()
        await asyncio.gather(*sending)
        most = (await fake.tell()).counts.most
        assert most <= 20, f"{most} calls were under way"


async def test_a_lower_limit_of_calls_acts_within_two_seconds(store: Store, fake: FakeProcess) -> None:
    """Those under way end; as many as are allowed now follow."""
    async with account_at(store, fake, rate=100, answering=Rule(status=202, delay_seconds=0.3)) as account:
        await account.change(max_in_flight=20)
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 2_000))
        while (await fake.tell()).counts.most < 19:
            await asyncio.sleep(0.02)
        await account.change(max_in_flight=3)
        await asyncio.sleep(2)
        await fake.forget()
        await asyncio.sleep(2)
        told = await fake.tell()
        worker.dispatch.stop()
        await sending
        assert told.counts.most <= 3
        assert len(told.arrived) >= 10, "it goes on with these"


async def test_calls_of_a_lost_worker_count_for_who_takes_over(store: Store, fake: FakeProcess) -> None:
    async with account_at(store, fake, rate=100, answering=Rule(status=202, delay_seconds=1.5)) as account:
        await account.change(max_in_flight=20)
        lost = await account.worker(0)
        sending = lost.start(account.messages(0, 300))
        while (await fake.tell()).counts.most < 19:
            await asyncio.sleep(0.02)
        await account.take_over(lost.batch.id, now_us=lost.clock.now_us())
        pace = account.pace(lost.batch.id, lost.clock)
        got = await pace.reserve(Wish(count=100, left=100, ahead_us=80_000, lasting_us=1_500_000))
        while isinstance(got, Wait) and got.limit is Limit.RATE:
            await asyncio.sleep(0.02)
            await lost.clock.look()
            got = await pace.reserve(Wish(count=100, left=100, ahead_us=80_000, lasting_us=1_500_000))
        assert isinstance(got, Wait)
        assert got.limit is Limit.IN_FLIGHT
        lost.dispatch.stop()
        await sending
        while isinstance(got, Wait):
            await asyncio.sleep(0.1)
            await lost.clock.look()
            got = await pace.reserve(Wish(count=100, left=100, ahead_us=80_000, lasting_us=1_500_000))
        assert got.calls >= 10, "they count until the time of the lost one is over"


async def test_who_was_overtaken_changes_no_place(store: Store, fake: FakeProcess) -> None:
    """It was frozen while another worker took the batch, and is to count none of that one's calls as its own."""
    async with account_at(store, fake, rate=100) as account:
        frozen = await account.worker(0)
        holder, clock = frozen.batch.id, frozen.clock
        await account.take_over(holder, now_us=clock.now_us(), turn=2)
        wish = Wish(count=10, left=10, ahead_us=80_000, lasting_us=500_000)
        got = await account.pace(holder, clock, turn=2).reserve(wish)
        while isinstance(got, Wait):
            await asyncio.sleep(0.1)
            await clock.look()
            got = await account.pace(holder, clock, turn=2).reserve(wish)
        assert await frozen.start(account.messages(0, 5)) is DispatchEnd.FORBIDDEN
        await CredentialFeed(store, MemoryBroker()).leave(account.credential_id, holder, turn=1)
        place = await account.place_of(holder)
        assert (place.turn, place.calls) == (2, got.calls)
        assert await account.arrivals() == []


async def test_a_place_is_yielded_at_once_however_long_a_call_lasts(store: Store, fake: FakeProcess) -> None:
    async with account_at(store, fake, rate=100, answering=Rule(status=202, delay_seconds=1.8)) as account:
        worker = await account.worker(0)
        sending = worker.start(account.messages(0, 500))
        while len((await fake.tell()).arrived) < 15:
            await asyncio.sleep(0.02)
        await account.have_yield(worker.batch.id)
        async with asyncio.timeout(1.2):
            while not (await account.place_of(worker.batch.id)).ends:
                await asyncio.sleep(0.02)
        assert not sending.done(), "calls are under way"
        assert (await account.place_of(worker.batch.id)).calls > 0
        assert await sending is DispatchEnd.YIELDED
        states = Counter(await account.states(0))
        assert set(states) <= {MessageState.SENT, MessageState.UNSENT}
