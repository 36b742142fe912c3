"""Feeding what follows a settled batch, whatever befalls its job between the batch's gate and its end."""

from collections.abc import Awaitable, Callable

import pytest

from shared.audience.rules.audiences import KeyRange
from shared.core.tasks import decode
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.jobs.feed import Feed
from shared.jobs.moves import JobFlow
from shared.jobs.rules.batches import SLOTS, Batch, BatchStatus, Receipt
from shared.jobs.rules.jobs import FinishJob, JobStatus, JobTask, SendBatch, Standing
from shared.runtime.clock import SystemClock
from shared.store import Store
from tests.jobs.made import SIZE, added

pytestmark = pytest.mark.native

Meanwhile = Callable[[Store, Feed, str], Awaitable[None]]


async def planned_so_far(store: Store, batches: int) -> str:
    """A job of which nobody knows yet that it has so many batches and no more; its id."""
    job_id = await added(store)
    page = [
        Batch(job_id=job_id, ordinal=place, range=KeyRange(SIZE * place, SIZE * (place + 1)), size=SIZE)
        for place in range(batches)
    ]
    assert await store.batches.add_page(page)
    return job_id


async def end_plan(store: Store, feed: Feed, job_id: str) -> None:
    """The planner's last steps, which end with a look at all chains."""
    last = await store.batches.last(job_id)
    assert isinstance(last, Batch)
    await store.batches.add_end(job_id, last.ordinal + 1)
    await store.jobs.end_plan(job_id, end=last.ordinal + 1)
    await feed.feed_job(job_id)


async def stop(store: Store, feed: Feed, job_id: str) -> None:
    assert await JobFlow(store, feed, SystemClock(), role="api").stop(job_id)


async def hold(store: Store, feed: Feed, job_id: str) -> None:
    assert await store.jobs.move(job_id, to=JobStatus.TRIPPED, only=frozenset({JobStatus.RUNNING}), at=1)


async def nothing(store: Store, feed: Feed, job_id: str) -> None:
    """All stays as it was at the gate."""


async def send(
    store: Store, feed: Feed, job_id: str, meanwhile: Meanwhile, *, to: BatchStatus = BatchStatus.SENT
) -> tuple[Batch, Standing]:
    """The job's first batch, settled, and what its gate saw; in between, something else happens."""
    queued = await store.batches.queue(job_id, 0)
    gated = await store.jobs.get_standing(job_id)
    assert queued is not None
    assert gated is not None
    taken = await store.batches.take(queued, owner="lane")
    assert taken is not None
    await meanwhile(store, feed, job_id)
    settled = await store.batches.settle(taken, to=to, receipt=Receipt(sent=SIZE))
    assert settled is not None
    return settled, gated


def tasks(broker: MemoryBroker) -> list[JobTask]:
    """All that waits on the broker."""
    kinds: tuple[type[JobTask], ...] = (SendBatch, FinishJob)
    return [decode(message.body, kind) for kind in kinds for message in broker.queue(kind.queue).ready]


@pytest.mark.parametrize("meanwhile", [end_plan, stop])
async def test_the_last_batch_has_its_job_closed_though_its_gate_saw_no_end(
    store: Store, feed: Feed, broker: MemoryBroker, meanwhile: Meanwhile
) -> None:
    job_id = await planned_so_far(store, 1)
    settled, gated = await send(store, feed, job_id, meanwhile)
    assert gated.end is None
    assert tasks(broker) == []
    await feed.feed_successor(settled, gated=gated)
    assert tasks(broker) == [FinishJob(job_id)]


async def test_a_job_whose_plan_goes_on_is_closed_by_its_planner(
    store: Store, feed: Feed, broker: MemoryBroker
) -> None:
    job_id = await planned_so_far(store, 1)
    settled, gated = await send(store, feed, job_id, nothing)
    await feed.feed_successor(settled, gated=gated)
    assert tasks(broker) == []
    await end_plan(store, feed, job_id)
    assert tasks(broker) == [FinishJob(job_id)]


@pytest.mark.parametrize("meanwhile", [nothing, hold])
async def test_a_successor_that_waits_is_queued_once(
    store: Store, feed: Feed, broker: MemoryBroker, meanwhile: Meanwhile
) -> None:
    """Of a job that is held since its gate, too: the successor has a gate of its own."""
    job_id = await planned_so_far(store, SLOTS + 1)
    settled, gated = await send(store, feed, job_id, meanwhile)
    for _ in range(2):
        await feed.feed_successor(settled, gated=gated)
    assert tasks(broker) == [SendBatch(job_id, SLOTS, 1)]


async def test_who_settles_a_batch_of_a_stopped_job_feeds_nothing(
    store: Store, feed: Feed, broker: MemoryBroker
) -> None:
    job_id = await planned_so_far(store, SLOTS + 1)
    settled, gated = await send(store, feed, job_id, stop)
    await feed.feed_successor(settled, gated=gated)
    assert tasks(broker) == [FinishJob(job_id)]
    assert not await store.batches.has_unsettled(job_id)


async def test_a_batch_that_failed_has_its_job_asked_again(store: Store, feed: Feed, broker: MemoryBroker) -> None:
    """For the breaker may have held it over this very batch."""
    job_id = await planned_so_far(store, SLOTS + 1)
    settled, gated = await send(store, feed, job_id, hold, to=BatchStatus.FAILED)
    await feed.feed_successor(settled, gated=gated)
    assert tasks(broker) == []
