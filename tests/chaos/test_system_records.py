"""Whoever is killed while the audit is told of a job, each of its milestones stands there once."""

import signal

import pytest

from shared.console.rules.audit import Actor, AuditRecord
from shared.jobs.rules.jobs import split_key
from tests.e2e.house import House
from tests.e2e.test_breaker import LARGE, held, no_template_for_some
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

DEVICES = 3_000
POINTS = ("audit.before_system_records", "audit.after_system_records")


async def all_told(house: House, job_key: str) -> list[AuditRecord]:
    """What the audit has been told of a job by itself, once nothing is left to be told of it."""
    store = house.servers.store

    async def nothing_is_left() -> bool:
        return not await store.milestones.find_of([job_key])

    await until(nothing_is_left, "the audit to be told")
    return list(await store.audit.page(on=split_key(job_key)[0], by="system", limit=10))


@pytest.mark.parametrize("point", and_rarely(POINTS[0], rarely=POINTS[1:]))
async def test_a_scheduler_that_dies_while_it_tells_makes_nothing_missing_or_double(house: House, point: str) -> None:
    await house.devices(DEVICES)
    doomed = await house.start("scheduler", fault=f"{point}=kill")
    await house.start("worker")
    job_key = await house.post()
    assert await doomed.gone() == -signal.SIGKILL
    for _ in range(2):
        await house.start("scheduler")
    await house.exactly_once(job_key, DEVICES)
    [record] = await all_told(house, job_key)
    assert (record.act, record.who) == ("job.complete", Actor(namespace="system", name="worker"))
    assert (record.on.name, record.on.app_id) == ("like", house.app_id)


async def test_a_finisher_that_dies_completes_nothing_and_the_next_one_is_told_of_once(house: House) -> None:
    await house.devices(DEVICES)
    doomed = await house.start("worker", fault="finish.after_file=kill")
    job_key = await house.post()
    assert await doomed.gone() == -signal.SIGKILL
    assert await house.servers.store.milestones.find_of([job_key]) == []
    for service in ("worker", "scheduler", "scheduler"):
        await house.start(service)
    await house.exactly_once(job_key, DEVICES)
    assert [record.act for record in await all_told(house, job_key)] == ["job.complete"]


@pytest.mark.slow
async def test_a_job_that_trips_and_completes_is_told_of_twice(house: House) -> None:
    await no_template_for_some(house)
    await house.start("scheduler")
    await house.start("worker", **LARGE)
    job_key = await house.post()
    await until(lambda: held(house, job_key), "the job to be held")
    assert await house.jobs.resume(job_key) is not None
    await house.closed(job_key)
    completed, tripped = await all_told(house, job_key)
    assert [completed.act, tripped.act] == ["job.complete", "job.trip"]
    assert "batches failed" in tripped.reason
    assert tripped.at <= completed.at
