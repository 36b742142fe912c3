"""Work that is put off: when it comes back, what it has counted by then, and when it does not come back."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from shared.audience.rules.audiences import KeyRange, PushTable
from shared.clock.rules.occurrences import Occurrence
from shared.core.errors import Unavailable
from shared.core.tasks import Task, decode
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.jobs.feed import PUT_OFF, Feed, mail_of
from shared.jobs.rules.batches import Batch, BatchStatus, Receipt
from shared.jobs.rules.jobs import FinishJob, JobStage, PlanJob, SendBatch, SendMail, batch_owner, job_owner
from shared.jobs.upkeep import Upkeep
from shared.store import Store
from tests.jobs.kinds import KINDS
from tests.jobs.made import added
from tests.queues import QUEUES

pytestmark = pytest.mark.native


async def queued(store: Store) -> Batch:
    """A batch of a job of its own, on its way in its first turn."""
    job_id = await added(store)
    await store.jobs.begin_plan(job_id, source=PushTable(10), templates=())
    await store.batches.add_page([Batch(job_id=job_id, ordinal=0, range=KeyRange(0, 10), size=10)])
    await store.batches.add_end(job_id, 1)
    await store.jobs.end_plan(job_id, end=1)
    batch = await store.batches.queue(job_id, 0)
    assert batch is not None
    return batch


def sends(batch: Batch, *, attempt: int = 0, faults: int = 0) -> SendBatch:
    return SendBatch(batch.job_id, batch.ordinal, batch.turn, attempt=attempt, faults=faults)


async def waiting(store: Store, batch: Batch) -> list[Occurrence]:
    return await store.occurrences.find_upcoming(batch_owner(batch.job_id, batch.ordinal), 10)


def published(broker: MemoryBroker, kind: type[Task] = SendBatch) -> list[Task]:
    return [decode(message.body, kind) for message in broker.queue(kind.queue).ready]


async def now_is(store: Store, batch: Batch) -> Batch:
    found = await store.batches.get(batch.job_id, batch.ordinal)
    assert found is not None
    return found


@pytest.mark.parametrize(("attempt", "earliest", "latest"), [(1, 1, 2), (3, 4, 8), (5, 15, 30), (2**31 - 1, 15, 30)])
async def test_the_pause_grows_to_its_cap(
    store: Store, feed: Feed, attempt: int, earliest: float, latest: float
) -> None:
    batch, before = await queued(store), await store.now()
    await feed.put_off(sends(batch, attempt=attempt, faults=2))
    after = await store.now()
    (occurrence,) = await waiting(store, batch)
    assert occurrence.due == occurrence.fires_at == occurrence.visible_at
    assert before + timedelta(seconds=earliest, milliseconds=-1) <= occurrence.due <= after + timedelta(seconds=latest)
    assert (occurrence.runs, occurrence.attempts) == (attempt, 2)
    assert latest <= PUT_OFF.cap_seconds


async def test_a_batch_comes_back_with_a_new_turn_and_its_tries(store: Store, feed: Feed, broker: MemoryBroker) -> None:
    batch = await queued(store)
    await feed.put_off(sends(batch, attempt=4, faults=1))
    (occurrence,) = await waiting(store, batch)
    await feed.bring_back(occurrence)
    assert published(broker) == [SendBatch(batch.job_id, 0, 2, attempt=4, faults=1)]
    assert (await now_is(store, batch)).status is BatchStatus.QUEUED


async def test_an_owned_batch_comes_back_with_its_owner(store: Store, feed: Feed, broker: MemoryBroker) -> None:
    batch = await store.batches.take(await queued(store), owner="lane")
    assert batch is not None
    await feed.put_off(sends(batch, attempt=1))
    (occurrence,) = await waiting(store, batch)
    await feed.bring_back(occurrence)
    assert published(broker) == [SendBatch(batch.job_id, 0, 2, attempt=1)]
    found = await now_is(store, batch)
    assert (found.status, found.owner) == (BatchStatus.SENDING, "lane")


async def test_the_same_try_put_off_twice_comes_back_once(store: Store, feed: Feed, broker: MemoryBroker) -> None:
    batch = await queued(store)
    for _ in range(3):
        await feed.put_off(sends(batch, attempt=1))
    for occurrence in await waiting(store, batch):
        await feed.bring_back(occurrence)
    assert published(broker) == [SendBatch(batch.job_id, 0, 2, attempt=1)]


async def is_sent(store: Store, feed: Feed, batch: Batch) -> None:
    taken = await store.batches.take(batch, owner="lane")
    assert taken is not None
    assert await store.batches.settle(taken, to=BatchStatus.SENT, receipt=Receipt(sent=10))


async def is_dropped(store: Store, feed: Feed, batch: Batch) -> None:
    assert await store.batches.drop_unsent(batch.job_id)


async def is_parked(store: Store, feed: Feed, batch: Batch) -> None:
    assert await store.batches.put_back(batch)


async def is_being_sent(store: Store, feed: Feed, batch: Batch) -> None:
    assert await store.batches.take(batch, owner="lane")


async def has_another_turn(store: Store, feed: Feed, batch: Batch) -> None:
    assert await store.batches.requeue(batch)


@pytest.mark.parametrize("move", [is_sent, is_dropped, is_parked, is_being_sent, has_another_turn])
async def test_a_batch_that_has_moved_since_is_left_alone(
    store: Store, feed: Feed, broker: MemoryBroker, move: Callable[[Store, Feed, Batch], Awaitable[None]]
) -> None:
    batch = await queued(store)
    await feed.put_off(sends(batch, attempt=1))
    await move(store, feed, batch)
    moved = await now_is(store, batch)
    (occurrence,) = await waiting(store, batch)
    await feed.bring_back(occurrence)
    assert await now_is(store, batch) == moved
    assert published(broker) == []


async def test_an_owned_batch_that_another_lane_has_taken_since_is_left_alone(
    store: Store, feed: Feed, broker: MemoryBroker
) -> None:
    owned = await store.batches.take(await queued(store), owner="lost")
    assert owned is not None
    await feed.put_off(sends(owned, attempt=1))
    cleared = await store.batches.disown(owned)
    assert cleared is not None
    assert await store.batches.take(cleared, owner="healthy")
    (occurrence,) = await waiting(store, owned)
    await feed.bring_back(occurrence)
    assert (await now_is(store, owned)).turn == owned.turn
    assert published(broker) == []


@pytest.mark.parametrize("move", [is_sent, is_dropped, is_parked, has_another_turn])
async def test_what_nobody_waits_for_any_more_is_not_put_off(
    store: Store, feed: Feed, move: Callable[[Store, Feed, Batch], Awaitable[None]]
) -> None:
    batch = await queued(store)
    await move(store, feed, batch)
    await feed.put_off(sends(batch, attempt=1))
    assert await waiting(store, batch) == []


async def test_what_comes_back_while_the_broker_is_away_is_put_off_again(store: Store, feed: Feed) -> None:
    batch = await queued(store)
    await feed.put_off(sends(batch, attempt=3, faults=1))
    (first,) = await waiting(store, batch)
    nowhere = MemoryBroker()
    with pytest.raises(Unavailable):
        await Feed(store, nowhere, KINDS).bring_back(first)
    (second,) = [each for each in await waiting(store, batch) if each.id != first.id]
    await nowhere.setup(QUEUES)
    for occurrence in (first, second):
        await Feed(store, nowhere, KINDS).bring_back(occurrence)
    assert published(nowhere) == [SendBatch(batch.job_id, 0, 3, attempt=3, faults=1)]


@pytest.mark.parametrize(("task", "stage"), [(PlanJob, JobStage.PLAN), (FinishJob, JobStage.FINISH)])
async def test_a_stage_of_a_job_is_put_off(
    store: Store, feed: Feed, task: type[PlanJob | FinishJob], stage: JobStage
) -> None:
    job_id = await added(store)
    await feed.put_off(task(job_id, attempt=2, faults=1))
    (occurrence,) = await store.occurrences.find_upcoming(job_owner(job_id, stage), 5)
    assert (occurrence.runs, occurrence.attempts) == (2, 1)


async def test_upkeep_leaves_what_was_put_off_to_the_clock(
    store: Store, feed: Feed, broker: MemoryBroker, upkeep: Upkeep
) -> None:
    batch = await queued(store)
    await feed.put_off(sends(batch, attempt=1))
    assert (await upkeep.run_once()).queued == 0
    assert published(broker) == []
    # Its occurrence is lost as well.
    await store.occurrences.remove_of(batch_owner(batch.job_id, batch.ordinal))
    assert (await upkeep.run_once()).queued == 1
    assert published(broker) == [replace(sends(batch), turn=2)]


async def test_the_end_of_a_job_is_put_off_once_however_many_try_it(
    store: Store, feed: Feed, broker: MemoryBroker, upkeep: Upkeep
) -> None:
    batch = await queued(store)
    taken = await store.batches.take(batch, owner="a lane")
    assert taken is not None
    await store.batches.settle(taken, to=BatchStatus.SENT, receipt=Receipt(sent=10))
    owner = job_owner(batch.job_id, JobStage.FINISH)
    assert (await upkeep.run_once()).jobs == 1
    assert published(broker, FinishJob) == [FinishJob(batch.job_id)]
    await feed.put_off(FinishJob(batch.job_id, attempt=7))
    await feed.put_off(FinishJob(batch.job_id, attempt=1))
    (occurrence,) = await store.occurrences.find_upcoming(owner, 5)
    assert occurrence.runs == 7
    await upkeep.run_once()
    assert len(published(broker, FinishJob)) == 1
    # Its occurrence is lost as well.
    await store.occurrences.remove_of(owner)
    await upkeep.run_once()
    assert len(published(broker, FinishJob)) == 2


async def test_upkeep_leaves_a_plan_that_was_put_off_to_the_clock(
    store: Store, feed: Feed, broker: MemoryBroker, upkeep: Upkeep
) -> None:
    job_id = await added(store)
    await feed.put_off(PlanJob(job_id, attempt=1))
    assert (await upkeep.run_once()).plans == 0
    await store.occurrences.remove_of(job_owner(job_id, JobStage.PLAN))
    assert (await upkeep.run_once()).plans == 1
    assert published(broker, PlanJob) == [PlanJob(job_id)]


async def test_a_mail_that_is_put_off_comes_back_alone(store: Store, feed: Feed) -> None:
    """Two mails of one job wait for their server: each has its own occurrence, which names nothing but it."""
    job_id = await added(store)
    for kind, at in (("created", 1), ("paused", 2)):
        await feed.put_off(SendMail(job_id, kind, at, attempt=3))
    owner = job_owner(job_id, JobStage.MAIL)
    found = await store.occurrences.find_upcoming(owner, 10)
    assert {mail_of(each) for each in found} == {("created", 1), ("paused", 2)}
    assert {each.runs for each in found} == {3}
