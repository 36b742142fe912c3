"""How files are cut, and how devices are divided, is forgotten with the jobs, however these ended."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

from shared.audience.rules.audiences import ByteRange, File, PushTable
from shared.jobs.retention import JobRetention
from shared.jobs.rules.batches import Receipt, Totals
from shared.jobs.rules.dividing import FoundDevices, next_step
from shared.jobs.rules.groups import Division
from shared.jobs.rules.jobs import STOPPABLE, Job, JobStatus
from shared.runtime.settings import SchedulerSettings
from shared.store import Store
from shared.time import DatabaseTime
from tests.jobs.kinds import KINDS
from tests.jobs.made import a_job

pytestmark = pytest.mark.native

FILE = File("carillon/jobs/players.csv", 1_000, "v1")


class NextMonth(DatabaseTime):
    """All that is closed was closed long ago."""

    async def now(self) -> datetime:
        return await super().now() + timedelta(days=30)


@pytest.fixture
def retention(store: Store) -> JobRetention:
    return JobRetention(store, NextMonth(store), KINDS, SchedulerSettings())


async def look_twice(retention: JobRetention) -> None:
    """What belongs to nobody is removed at the second look."""
    for _ in range(2):
        await retention.run_once()


async def over_a_file(store: Store, **fields: Any) -> Job:
    """A job whose file is being cut: one page is stored."""
    job = a_job(csv_path=FILE.path, **({"group_id": str(uuid.uuid4())} | fields))
    await store.jobs.add(job)
    await store.files.begin(job.file_plan_id, FILE, cut_records=1_000)
    await store.files.add_page(job.file_plan_id, 0, [ByteRange(3, 500, 100)])
    return job


async def divided(store: Store, job: Job) -> None:
    """The job's group, in mid-division: one step counts, and of another one there are only lists."""
    division = await store.divisions.begin(Division(id=job.file_plan_id, source=PushTable(9), size=1))
    step, lists = next_step(division, None, FoundDevices(5, {"rest": np.array([1, 5])}), attempt="a")
    await store.divisions.add_lists(lists)
    await store.divisions.add_step(step)
    await store.divisions.add_lists(next_step(division, step, FoundDevices(9, {"rest": np.array([9])}), attempt="b")[1])


async def is_divided(store: Store, job: Job) -> bool:
    divisions = store.divisions
    some = [await each.find_one({}) for each in (divisions._divisions, divisions._steps, divisions._lists)]
    assert len({document is None for document in some}) == 1
    return some[0] is not None


async def begun(store: Store, job: Job) -> None:
    await store.jobs.begin_plan(job.id, source=FILE, templates=())


async def stopped(store: Store, job: Job) -> None:
    """The job's end before that of its plan."""
    await store.jobs.move(job.id, to=JobStatus.STOPPED, only=STOPPABLE, at=1)
    assert await store.jobs.close(job.id, totals=Totals(), summed=Receipt(), completed_at=2) is not None


async def is_known(store: Store, job: Job) -> bool:
    plan, page = await store.files.plan(job.file_plan_id), await store.files.page(job.file_plan_id, 0)
    assert (plan is None) == (page is None)
    return plan is not None


async def test_of_a_job_that_was_stopped_in_mid_plan(store: Store, retention: JobRetention) -> None:
    job, other = await over_a_file(store), await over_a_file(store)
    for each in (job, other):
        await begun(store, each)
    await stopped(store, job)
    await look_twice(retention)
    assert not await is_known(store, job)
    assert await is_known(store, other)


async def test_of_a_job_that_was_withdrawn_in_mid_plan(store: Store, retention: JobRetention) -> None:
    job, other = await over_a_file(store), await over_a_file(store)
    assert await store.open_jobs.withdraw(job.id)
    await look_twice(retention)
    assert not await is_known(store, job)
    assert await is_known(store, other)


async def test_of_a_group_with_its_last_job(store: Store, retention: JobRetention) -> None:
    group_id = str(uuid.uuid4())
    jobs = [await over_a_file(store, group_id=group_id, zone=zone) for zone in ("+0100", "+0200", "rest")]
    for job in jobs[:-1]:
        assert await store.open_jobs.withdraw(job.id)
        await look_twice(retention)
        assert await is_known(store, job)
    assert await store.open_jobs.withdraw(jobs[-1].id)
    await look_twice(retention)
    assert not await is_known(store, jobs[-1])


async def test_a_division_goes_with_the_last_job_of_its_group(store: Store, retention: JobRetention) -> None:
    group_id = str(uuid.uuid4())
    jobs = [a_job(group_id=group_id, zone=zone, offsets=("+0100",)) for zone in ("+0100", "rest")]
    for job in jobs:
        await store.jobs.add(job)
        await begun(store, job)
    await divided(store, jobs[0])
    await stopped(store, jobs[0])
    await look_twice(retention)
    assert await is_divided(store, jobs[0])
    await stopped(store, jobs[1])
    await look_twice(retention)
    assert not await is_divided(store, jobs[0])


async def test_a_division_whose_jobs_were_withdrawn_goes_too(store: Store, retention: JobRetention) -> None:
    job = a_job(group_id=str(uuid.uuid4()), zone="rest", offsets=("+0100",))
    await store.jobs.add(job)
    await divided(store, job)
    await look_twice(retention)
    assert await is_divided(store, job)
    assert await store.open_jobs.withdraw(job.id)
    await look_twice(retention)
    assert not await is_divided(store, job)


async def test_among_very_many(store: Store, retention: JobRetention, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some are looked at in a round, and all of them in some rounds."""
    monkeypatch.setattr("shared.jobs.retention._STEP", 2)
    jobs = [await over_a_file(store) for _ in range(7)]
    for job in jobs[::2]:
        assert await store.open_jobs.withdraw(job.id)
    for _ in range(4):
        await look_twice(retention)
    assert [await is_known(store, job) for job in jobs] == [False, True] * 3 + [False]


async def test_what_was_removed_is_not_remembered(store: Store, retention: JobRetention) -> None:
    for _ in range(3):
        job = await over_a_file(store)
        assert await store.open_jobs.withdraw(job.id)
        await look_twice(retention)
        assert not await is_known(store, job)
    assert not any(retention._orphans.values())
