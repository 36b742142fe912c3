"""What upkeep finds in a job that is held."""

import pytest

from shared.broker.memory import MemoryBroker
from shared.domain.jobs.jobs import PAUSABLE, JobStatus
from shared.domain.jobs.tasks import SendBatch
from shared.domain.tasks import decode
from shared.flow.jobs.upkeep import Upkeep
from shared.store import Store
from tests.samples import sample
from tests.store.made import add_planned

pytestmark = pytest.mark.native


async def test_a_queued_batch_of_a_paused_job_gets_a_new_message(
    store: Store, broker: MemoryBroker, upkeep: Upkeep
) -> None:
    """Whoever takes it puts it back; without a message it would still be queued when the job is resumed, and wait."""
    job_id = await add_planned(store, 1)
    lost = await store.batches.queue(job_id, 0)
    assert lost is not None
    await store.jobs.move(job_id, to=JobStatus.PAUSED, only=PAUSABLE, at=1)
    assert (await upkeep.run_once()).queued == 1
    (message,) = broker.queue(SendBatch.queue).ready
    assert decode(message.body, SendBatch) == SendBatch(job_id, 0, lost.turn + 1)


async def test_it_tells_how_long_a_batch_of_a_running_job_has_waited(store: Store, upkeep: Upkeep) -> None:
    job_id = await add_planned(store, 2)
    await upkeep.sweep()  # feeds it
    first = await store.batches.queue(job_id, 0) or await store.batches.get(job_id, 0)
    assert first is not None
    assert first.changed_at is not None
    found = await upkeep.run_once()
    assert found.oldest_queued == first.changed_at
    await upkeep.sweep()
    assert 0 < sample("batch_oldest_queued_seconds") < 60
    await store.jobs.move(job_id, to=JobStatus.PAUSED, only=PAUSABLE, at=1)
    await upkeep.sweep()
    assert sample("batch_oldest_queued_seconds") == 0
