"""The circuit breaker: a job whose batches fail is held, once, and goes on when it is resumed."""

import pytest

from shared.jobs.rules.jobs import JobStatus
from tests.e2e.house import House
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.native]


async def held(house: House, job_id: str) -> bool:
    job = await house.servers.store.jobs.view(job_id)
    return job is not None and job.status is JobStatus.TRIPPED


async def no_template_for_some(house: House) -> None:
    """Devices from 3,001 to 4,000 have tokens that make records too large."""
    house.environment["CARILLON_WORKER_MAX_BATCH_FAILURE"] = "0.05"
    await house.devices(10_000)
    await house.change_devices("UPDATE {table} SET token = repeat('x', 3000) WHERE seq_id BETWEEN 3001 AND 4000")


LARGE = {"CARILLON_STREAM_MAX_RECORD_BYTES": "2000"}


@pytest.mark.proof
@pytest.mark.parametrize("killed", and_rarely(True, rarely=(False,)), ids=["killed_before_the_look", "alive"])
async def test_a_failing_batch_holds_the_job_and_resume_forgives_it(house: House, killed: bool) -> None:
    await no_template_for_some(house)
    await house.start("scheduler")
    doomed = await house.start("worker", fault="breaker.before_look=kill" if killed else "", **LARGE)
    job_id = await house.post()
    if killed:
        await doomed.gone()
        await house.start("worker", **LARGE)
    await until(lambda: held(house, job_id), "the job to be held")
    job = await house.servers.store.jobs.view(job_id)
    assert job is not None
    assert "of" in job.events[-1].message
    assert job.events[-1].state == "fail"
    assert await house.jobs.resume(job_id) is not None
    job = await house.closed(job_id)
    assert job.status is JobStatus.COMPLETED
    assert job.totals is not None
    assert (job.totals.sent, job.totals.failed) == (9_000, 1_000)
    assert job.reasons == {"too-large": 1_000}
    assert job.forgiven == 1
    per_device = await house.sent_per_device(9_000)
    assert len(per_device) == 9_000
    assert set(per_device.values()) == {1}


async def test_a_job_with_few_failures_goes_on(house: House) -> None:
    await no_template_for_some(house)
    await house.start("worker", CARILLON_WORKER_MAX_BATCH_FAILURE="0.2", **LARGE)
    job = await house.closed(await house.post())
    assert job.status is JobStatus.COMPLETED
    assert all(event.state != "fail" for event in job.events)
