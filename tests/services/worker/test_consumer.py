"""What becomes of a message: done, tried again in place, put off, requeued, or given up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.worker import consumer as rules
from services.worker.consumer import FAULTS, IN_PLACE_SECONDS, Consumer, Patience, Stage
from shared.clock.rules.callbacks import CALL_QUEUE, CallTarget
from shared.core.errors import LaneLost, Unavailable
from shared.core.tasks import Task, decode, encode
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.jobs.rules.jobs import BATCH_QUEUE, FinishJob, SendBatch
from shared.runtime.loops import Backoff
from shared.runtime.metrics import REGISTRY
from tests.clocks import ManualClock
from tests.queues import QUEUES
from tests.waiting import SECONDS, until

ONE, OTHER = SendBatch("one", 0, 1), SendBatch("other", 0, 1)
CALL = CallTarget("o", "t")
AWAY = Unavailable("the push database does not answer")
STORE_AWAY = Unavailable("the store does not answer")
BROKEN = RuntimeError("a fault of ours")


class PassingTime(ManualClock):
    """The consumer's time, which its pauses move on."""

    def monotonic(self) -> float:
        return self.now_ns() / 1e9

    async def pause(self, stopping: asyncio.Event, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> PassingTime:
    time = PassingTime()
    monkeypatch.setattr(rules, "time", time)
    monkeypatch.setattr(rules, "pause", time.pause)
    return time


class Scripted(Stage[Any]):
    """A stage whose tries end as it was told, the last way for ever; a task that it was told nothing about is done."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)
        self.cannot_put_off: list[Exception] = []
        self.tried: list[Task] = []
        self.again: list[Task] = []
        self.done: list[Task] = []
        self.later: list[Task] = []
        self.given_up: list[tuple[Task, str]] = []

    in_flight = 1

    async def run(self, task: Task) -> None:
        self.tried.append(task)
        end = None if task == OTHER or not self.ends else self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        if end is not None:
            raise end
        self.done.append(task)

    async def run_again(self, task: Task) -> None:
        self.again.append(task)
        await self.run(task)

    async def put_off(self, task: Task) -> None:
        if self.cannot_put_off:
            raise self.cannot_put_off.pop(0)
        self.later.append(task)

    async def give_up(self, task: Task, reason: str) -> None:
        self.given_up.append((task, reason))


def count_dropped(queue: str) -> float:
    return REGISTRY.get_sample_value("carillon_tasks_total", {"queue": queue, "outcome": "dropped"}) or 0.0


class Place:
    """A broker with one consumer of one slot, until it is told to stop."""

    def __init__(self, stage: Scripted, kind: type[Task]) -> None:
        stage.task = kind  # type: ignore[misc]  # of the instance: each test has its own
        self.broker = MemoryBroker()
        self.stopping = asyncio.Event()
        self.kind = kind
        self.queue = kind.queue
        self._dropped_before = count_dropped(self.queue)
        self._consumer = Consumer(self.broker, stage, name="test")

    async def publish(self, *given: Task) -> None:
        for task in given:
            await self.broker.publish(task.queue, encode(task))

    async def run(self) -> None:
        await self._consumer.run(self.stopping)

    @property
    def dropped(self) -> float:
        """How many messages were dropped here."""
        return count_dropped(self.queue) - self._dropped_before

    @property
    def unanswered(self) -> int:
        return sum(len(each._unanswered) for each in self.broker.queue(self.queue).consumers)


@asynccontextmanager
async def place(stage: Scripted, *given: Task) -> AsyncIterator[Place]:
    made = Place(stage, type(given[0]))
    await made.broker.setup(QUEUES)
    await made.publish(*given)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        made.stopping.set()
        await asyncio.wait_for(running, SECONDS)


async def is_answered(at: Place) -> bool:
    return not at.unanswered and not await at.broker.depth(at.queue)


async def test_a_stage_knows_what_the_broker_delivers_again() -> None:
    stage = Scripted(None)
    at = Place(stage, SendBatch)
    await at.broker.setup(QUEUES)
    await at.publish(ONE)
    async with at.broker.subscribe(at.queue, name="one that dies", prefetch=1) as subscription:
        await anext(aiter(subscription))
    await at.publish(OTHER)
    running = asyncio.create_task(at.run())
    await until(lambda: is_answered(at))
    at.stopping.set()
    await asyncio.wait_for(running, SECONDS)
    assert (stage.again, sorted(map(repr, stage.done))) == ([ONE], sorted(map(repr, [ONE, OTHER])))


@pytest.mark.parametrize("error", [AWAY, LaneLost("lane", "no reply")])
async def test_a_blip_is_tried_again_in_place(passing: PassingTime, error: Exception) -> None:
    stage, began = Scripted(error, error, None), passing.monotonic()
    async with place(stage, ONE) as at:
        await until(lambda: is_answered(at))
    assert 0 < passing.monotonic() - began < IN_PLACE_SECONDS
    assert (stage.tried, stage.done, stage.later) == ([ONE] * 3, [ONE], [])
    assert at.dropped == 0


@pytest.mark.parametrize("error", [AWAY, LaneLost("lane", "no reply")])
async def test_what_stays_away_is_put_off_and_leaves_its_slot_to_others(passing: PassingTime, error: Exception) -> None:
    stage, began = Scripted(error), passing.monotonic()
    async with place(stage, ONE, OTHER) as at:
        await until(lambda: is_answered(at))
    assert IN_PLACE_SECONDS <= passing.monotonic() - began < 3 * IN_PLACE_SECONDS
    assert stage.later == [SendBatch("one", 0, 1, attempt=1)]
    assert stage.done == [OTHER]
    assert 4 <= stage.tried.count(ONE) <= 12
    assert at.dropped == 0


async def test_what_takes_long_to_fail_is_tried_twice_in_place(
    passing: PassingTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost lane among it is recovered at once, whatever losing it took."""
    stage = Scripted(LaneLost("lane", "no reply"))
    run = stage.run

    async def run_for_long(task: Task) -> None:
        passing.advance(IN_PLACE_SECONDS)
        await run(task)

    monkeypatch.setattr(stage, "run", run_for_long)
    async with place(stage, ONE) as at:
        await until(lambda: is_answered(at))
    assert (len(stage.tried), len(stage.later)) == (2, 1)


async def test_what_is_away_never_fails_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "IN_PLACE_SECONDS", 0.1)
    stage = Scripted(AWAY)
    async with place(stage, SendBatch("one", 0, 9, attempt=1_000, faults=FAULTS - 1)) as at:
        await until(lambda: is_answered(at))
    assert stage.later == [SendBatch("one", 0, 9, attempt=1_001, faults=FAULTS - 1)]
    assert stage.given_up == []


async def test_a_fault_is_put_off_at_once_and_counted(passing: PassingTime) -> None:
    stage, began = Scripted(BROKEN), passing.monotonic()
    async with place(stage, SendBatch("one", 0, 4, attempt=7)) as at:
        await until(lambda: is_answered(at))
    assert passing.monotonic() == began
    assert stage.later == [SendBatch("one", 0, 4, attempt=8, faults=1)]
    assert (len(stage.tried), stage.given_up, at.dropped) == (1, [], 0)


async def test_the_last_fault_gives_the_work_up() -> None:
    task = SendBatch("one", 0, 4, attempt=2, faults=FAULTS - 1)
    stage = Scripted(BROKEN)
    async with place(stage, task) as at:
        await until(lambda: is_answered(at))
    assert stage.given_up == [(task, "RuntimeError: a fault of ours")]
    assert (stage.later, at.dropped) == ([], 1)


async def test_without_the_store_a_message_is_held_until_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "IN_PLACE_SECONDS", 0.0)
    stage = Scripted(AWAY)
    stage.cannot_put_off = [STORE_AWAY] * 3
    async with place(stage, ONE, OTHER) as at:
        await until(lambda: is_answered(at))
    assert stage.tried == [ONE] * 4 + [OTHER]
    assert stage.later == [SendBatch("one", 0, 1, attempt=1)]


async def test_without_the_store_for_long_a_message_goes_back_to_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "IN_PLACE_SECONDS", 0.0)
    monkeypatch.setattr(rules, "AWAY", Patience(3, Backoff(first_seconds=0.01)))
    stage = Scripted(AWAY)
    stage.cannot_put_off = [STORE_AWAY] * 3
    async with place(stage, ONE) as at:
        await until(lambda: is_answered(at))
    # Three tries by the first delivery, one by the second: with the store back, that is put off.
    assert (len(stage.tried), stage.later) == (4, [SendBatch("one", 0, 1, attempt=1)])


async def test_faults_are_counted_also_where_they_cannot_be_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "AWAY", Patience(20, Backoff(first_seconds=0.01)))
    stage = Scripted(BROKEN)
    stage.cannot_put_off = [STORE_AWAY, BROKEN]
    async with place(stage, ONE) as at:
        await until(lambda: is_answered(at))
    assert (len(stage.tried), len(stage.given_up), at.dropped) == (FAULTS, 1, 1)


async def test_who_is_told_to_stop_leaves_the_work_to_others_at_once() -> None:
    stage = Scripted(AWAY)
    async with place(stage, ONE) as at:
        await until(lambda: stage.tried)
        at.stopping.set()
        await until(lambda: not at.unanswered)
    assert [decode(message.body, SendBatch) for message in at.broker.queue(BATCH_QUEUE).ready] == [ONE]
    assert stage.later == []


async def test_a_call_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "IN_PLACE_SECONDS", 0.1)
    stage = Scripted(AWAY)
    async with place(stage, CALL) as at:
        await until(lambda: is_answered(at))
    assert (stage.later, stage.given_up, at.dropped) == ([CALL], [], 0)


async def test_a_fault_of_a_call_is_left_to_its_lease_and_shown() -> None:
    stage = Scripted(BROKEN)
    async with place(stage, CALL) as at:
        await until(lambda: is_answered(at))
    assert (len(stage.tried), len(stage.given_up), stage.later) == (1, 1, [])
    assert (at.queue, at.dropped) == (CALL_QUEUE, 1)


async def test_a_message_that_cannot_be_read_is_dropped() -> None:
    stage = Scripted()
    async with place(stage, OTHER) as at:
        await at.broker.publish(BATCH_QUEUE, b"garbage")
        await until(lambda: is_answered(at))
    assert stage.tried == [OTHER]
    assert at.dropped == 1


async def test_a_task_of_another_kind_is_dropped() -> None:
    stage = Scripted()
    async with place(stage, OTHER) as at:
        await at.broker.publish(BATCH_QUEUE, encode(FinishJob("one")))
        await until(lambda: is_answered(at))
    assert stage.tried == [OTHER]
    assert at.dropped == 1
