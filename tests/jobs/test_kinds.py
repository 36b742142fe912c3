"""Kinds of jobs: one that a process does not know delays its own jobs and no others."""

import pytest

from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.jobs.feed import Feed
from shared.jobs.kinds import JobKinds, UnknownKind
from shared.jobs.rules.batches import BatchStatus
from shared.jobs.rules.jobs import Job, SendBatch
from shared.jobs.upkeep import Upkeep
from shared.store import Store
from tests.jobs.conftest import impatient
from tests.jobs.kinds import Plain
from tests.jobs.made import add_planned
from tests.queues import QUEUES


async def of_another_version(store: Store, job_id: str) -> None:
    await store._database["jobs"].update_one({"_id": job_id}, {"$set": {"service": "carrier-pigeon"}})


@pytest.mark.native
async def test_upkeep_goes_on_behind_a_job_that_nobody_here_knows(store: Store, upkeep: Upkeep) -> None:
    ids = sorted([await add_planned(store, 1) for _ in range(3)])
    await of_another_version(store, ids[0])
    await of_another_version(store, ids[1])
    await upkeep.run_once()
    found = [await store.batches.get(job_id, 0) for job_id in ids]
    assert [batch.status for batch in found if batch] == [*[BatchStatus.PLANNED] * 2, BatchStatus.QUEUED]
    assert [batch.turn for batch in found if batch] == [0, 0, 1]


@pytest.mark.native
async def test_the_message_of_a_process_that_knows_the_kind_stays_valid(
    store: Store, feed: Feed, upkeep: Upkeep
) -> None:
    job_id = await add_planned(store, 1)
    queued = await store.batches.queue(job_id, 0)
    assert queued is not None
    await of_another_version(store, job_id)
    with pytest.raises(UnknownKind):
        await feed.requeue(queued)
    await upkeep.run_once()
    assert await store.batches.get(job_id, 0) == queued


@pytest.mark.native
async def test_a_queue_that_is_not_there_yet_does_not_end_upkeep(store: Store, feed: Feed) -> None:
    nowhere = MemoryBroker()
    await nowhere.setup(tuple(queue for queue in QUEUES if queue != SendBatch.queue))
    await add_planned(store, 1)
    assert (await impatient(store, nowhere, feed).run_once()).jobs == 1


class Doubled(Plain):
    @property
    def services(self) -> dict[str, str]:
        return {"another": "another"}


class OtherTask(SendBatch, frozen=True, tag="other"):
    queue = "push.other"


class SameService(Plain):
    batch_task = OtherTask

    def recipients_per_part(self, job: Job) -> int:
        return 1


@pytest.mark.parametrize("other", [Doubled(), SameService()])
def test_no_two_kinds_share_a_queue_or_a_service(other: Plain) -> None:
    with pytest.raises(ValueError):
        JobKinds([Plain(), other])
