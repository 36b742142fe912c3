"""Kinds of jobs: one that a process does not know delays its own jobs and no others."""

from datetime import timedelta

import pytest

from shared.broker.memory import MemoryBroker
from shared.domain.jobs.batches import BatchStatus
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.tasks import SendBatch
from shared.flow.jobs.breaker import Breaker
from shared.flow.jobs.feed import Feed
from shared.flow.jobs.groups import GroupFlow
from shared.flow.jobs.jobs import JobFlow
from shared.flow.jobs.kinds import JobKinds, UnknownKind
from shared.flow.jobs.upkeep import Upkeep, UpkeepPatience
from shared.runtime.clock import SystemClock
from shared.store import Store
from tests.flow.kinds import KINDS, Plain
from tests.queues import QUEUES
from tests.store.made import add_planned

NONE = timedelta(0)


@pytest.fixture
async def broker() -> MemoryBroker:
    made = MemoryBroker()
    await made.setup(QUEUES)
    return made


@pytest.fixture
def feed(store: Store, broker: MemoryBroker) -> Feed:
    return Feed(store, broker, KINDS)


async def of_another_version(store: Store, job_id: str) -> None:
    await store._database["jobs"].update_one({"_id": job_id}, {"$set": {"service": "carrier-pigeon"}})


def upkeep(store: Store, broker: MemoryBroker, feed: Feed, kinds: JobKinds = KINDS) -> Upkeep:
    jobs = JobFlow(store, feed, SystemClock())
    breaker = Breaker(store, SystemClock(), max_failed_share=0.05, mails=False)
    patience = UpkeepPatience(NONE, NONE, NONE)
    return Upkeep(store, broker, feed, jobs, GroupFlow(store, jobs), breaker, kinds, patience)


@pytest.mark.native
async def test_upkeep_goes_on_behind_a_job_that_nobody_here_knows(
    store: Store, broker: MemoryBroker, feed: Feed
) -> None:
    ids = sorted([await add_planned(store, 1) for _ in range(3)])
    await of_another_version(store, ids[0])
    await of_another_version(store, ids[1])
    await upkeep(store, broker, feed).run_once()
    found = [await store.batches.get(job_id, 0) for job_id in ids]
    assert [batch.status for batch in found if batch] == [*[BatchStatus.PLANNED] * 2, BatchStatus.QUEUED]
    assert [batch.turn for batch in found if batch] == [0, 0, 1]


@pytest.mark.native
async def test_the_message_of_a_process_that_knows_the_kind_stays_valid(
    store: Store, broker: MemoryBroker, feed: Feed
) -> None:
    job_id = await add_planned(store, 1)
    queued = await store.batches.queue(job_id, 0)
    assert queued is not None
    await of_another_version(store, job_id)
    with pytest.raises(UnknownKind):
        await feed.requeue(queued)
    await upkeep(store, broker, feed).run_once()
    assert await store.batches.get(job_id, 0) == queued


@pytest.mark.native
async def test_a_queue_that_is_not_there_yet_does_not_end_upkeep(store: Store, feed: Feed) -> None:
    nowhere = MemoryBroker()
    await nowhere.setup(tuple(queue for queue in QUEUES if queue != SendBatch.queue))
    await add_planned(store, 1)
    assert (await upkeep(store, nowhere, feed).run_once()).jobs == 1


class Doubled(Plain):
    @property
    def services(self) -> dict[str, str]:
        return {"another": "another"}


class OtherTask(SendBatch, frozen=True, tag="other"):
    queue = "push.other"


class SameService(Plain):
    batch_task = OtherTask

    def fitting(self, job: Job) -> int:
        return 1


@pytest.mark.parametrize("other", [Doubled(), SameService()])
def test_no_two_kinds_share_a_queue_or_a_service(other: Plain) -> None:
    with pytest.raises(ValueError):
        JobKinds([Plain(), other])
