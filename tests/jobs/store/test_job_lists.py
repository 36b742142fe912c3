"""Lists of jobs over apps, the newest first."""

from datetime import UTC, datetime, timedelta
from typing import Any

from shared.core.instants import ns
from shared.jobs.rules.jobs import Job, JobStatus
from shared.jobs.store_jobs import place_of_job
from shared.store import Store
from tests.jobs.made import a_job


async def some_jobs(store: Store) -> list[Job]:
    """Twelve jobs of two apps, the newest first; two were made at the same time."""
    jobs = [
        a_job(
            app_id="ab"[n % 2],
            created_at=1_000 + n // 2 * 2,
            status=JobStatus.PAUSED if n % 3 else JobStatus.RUNNING,
            template_names=("like",) if n < 8 else ("like", "love"),
        )
        for n in range(12)
    ]
    for job in jobs:
        await store.jobs.add(job)
    return sorted(jobs, key=place_of_job, reverse=True)


async def pages(store: Store, **wanted: Any) -> list[str]:
    ids: list[str] = []
    before = ""
    while True:
        page = await store.job_lists.page(**wanted, before=before, limit=2)
        ids += [job.id for job in page]
        if not page.more:
            return ids
        before = place_of_job(page[-1])


async def test_each_list_is_whole_and_in_order(store: Store) -> None:
    jobs = await some_jobs(store)
    assert await pages(store) == [job.id for job in jobs]
    assert await pages(store, app_id="a") == [job.id for job in jobs if job.app_id == "a"]
    running = [job.id for job in jobs if job.status is JobStatus.RUNNING]
    assert await pages(store, status=JobStatus.RUNNING) == running
    assert await pages(store, app_id="b", template="like,love") == [
        job.id for job in jobs if job.app_id == "b" and len(job.template_names) == 2
    ]


async def test_a_list_is_of_one_maker_and_of_a_time(store: Store) -> None:
    start = datetime(2030, 1, 1, tzinfo=UTC)
    jobs = [
        a_job(app_id="ab"[n % 2], created_by=f"{'xyz'[n % 3]}@example.com", created_at=ns(start + timedelta(hours=n)))
        for n in range(12)
    ]
    for job in jobs:
        await store.jobs.add(job)
    newest = jobs[::-1]
    by_x = [job.id for job in newest if job.created_by == "x@example.com"]
    assert await pages(store, by="x@example.com") == by_x
    assert await pages(store, by="x@example.com", app_id="a") == [
        job.id for job in newest if job.id in by_x and job.app_id == "a"
    ]
    assert await pages(store, by="x") == []
    since, until = start + timedelta(hours=3), start + timedelta(hours=9)
    assert await pages(store, since=since) == [job.id for job in newest[:9]]
    assert await pages(store, until=until) == [job.id for job in newest[3:]]
    assert await pages(store, since=since, until=until) == [job.id for job in newest[3:9]]
    assert await pages(store, since=since, until=until, by="x@example.com") == [
        job.id for job in newest[3:9] if job.id in by_x
    ]
    assert await pages(store, since=until, until=since) == []


async def test_a_list_is_of_those_with_a_failure_or_without_one(store: Store) -> None:
    jobs = [
        a_job(app_id="ab"[n % 2], created_at=n, status=JobStatus.COMPLETED, failure="" if n % 3 else "late")
        for n in range(12)
    ]
    await store.jobs.add_missing([*jobs, a_job(app_id="a", status=JobStatus.STOPPED, failure="broken")])
    for failed in (True, False):
        some = [job for job in jobs[::-1] if bool(job.failure) is failed]
        assert await pages(store, status=JobStatus.COMPLETED, failed=failed) == [job.id for job in some]
        of_a = [job.id for job in some if job.app_id == "a"]
        assert await pages(store, status=JobStatus.COMPLETED, failed=failed, app_id="a") == of_a


async def test_the_overview_knows_how_many_are_open_and_which_start_next(store: Store) -> None:
    for n in (3, 1, 2):
        await store.jobs.add(a_job(status=JobStatus.SCHEDULED, starts_at=n))
    await store.jobs.add(a_job(status=JobStatus.RUNNING))
    await store.jobs.add(a_job(status=JobStatus.COMPLETED, open=False))
    counts = await store.job_lists.count_open()
    assert {status: count for status, count in counts.items() if count} == {
        JobStatus.SCHEDULED: 3,
        JobStatus.RUNNING: 1,
    }
    assert [job.starts_at for job in await store.job_lists.find_next_starts(2)] == [1, 2]
