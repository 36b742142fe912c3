"""What jobs came to stands in them until the audit has been told."""

from typing import Any

import pytest

from shared.jobs.rules.batches import Receipt, Totals
from shared.jobs.rules.events import COMPLETE, TRIP, Milestone
from shared.jobs.rules.jobs import RESUMABLE, STOPPABLE, JobStatus
from shared.jobs.store_milestones import JobMilestones
from shared.store import Store
from tests.jobs.made import added

pytestmark = pytest.mark.native

RUNNING = frozenset({JobStatus.RUNNING})


async def milestone(store: Store, act: str = TRIP) -> Milestone:
    return Milestone(act, await store.now(), "worker", "why")


async def trip(store: Store, job_id: str) -> Milestone:
    tripped = await milestone(store)
    assert await store.jobs.move(job_id, to=JobStatus.TRIPPED, only=RUNNING, at=1, milestone=tripped) is not None
    return tripped


async def find(store: Store) -> list[JobMilestones]:
    return await store.milestones.find(limit=10)


async def test_a_milestone_comes_with_its_move_and_stays_until_it_is_taken(store: Store) -> None:
    job_id = await added(store, incarnation="1")
    assert await find(store) == []
    tripped = await trip(store, job_id)
    assert await store.jobs.move(job_id, to=JobStatus.TRIPPED, only=RUNNING, at=2, milestone=tripped) is None
    [found] = await find(store)
    assert (found.id, found.key, found.app_id, found.name) == (job_id, f"{job_id}.1", "a", "like")
    assert found.milestones == (tripped,)
    assert await store.milestones.find_of([f"{job_id}.1", await added(store)]) == [found]
    for _ in range(2):
        await store.milestones.take([found])
        assert await find(store) == []


async def test_what_came_since_it_was_read_is_not_taken_with_it(store: Store) -> None:
    job_id = await added(store)
    first = await trip(store, job_id)
    earlier = await find(store)
    await store.jobs.move(job_id, to=JobStatus.RUNNING, only=RESUMABLE, at=3)
    second = await trip(store, job_id)
    await store.milestones.take(earlier)
    [found] = await find(store)
    assert found.milestones == (first, second)
    await store.milestones.take([found])
    assert await find(store) == []


async def test_what_a_later_version_stores_of_one_is_taken_all_the_same(store: Store) -> None:
    job_id = await added(store)
    tripped = await trip(store, job_id)
    await store.jobs._jobs.update_one({"_id": job_id}, {"$set": {"milestones.0.of_a_later_version": {"any": 1}}})
    [found] = await find(store)
    assert found.milestones == (tripped,)
    await store.milestones.take([found])
    assert await find(store) == []


async def test_only_a_completion_is_one_and_no_stop(store: Store) -> None:
    completed, stopped = await added(store), await added(store)
    await store.jobs.move(stopped, to=JobStatus.STOPPED, only=STOPPABLE, at=1)
    for job_id in (completed, stopped):
        reached = await milestone(store, COMPLETE)
        sums: dict[str, Any] = {"totals": Totals(), "summed": Receipt(), "completed_at": 7, "milestone": reached}
        assert await store.jobs.close(job_id, **sums) is not None
        assert await store.jobs.close(job_id, **sums) is None
    assert [(found.id, len(found.milestones)) for found in await find(store)] == [(completed, 1)]
