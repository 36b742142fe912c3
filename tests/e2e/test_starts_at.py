"""`startsAt` with real processes: a job goes out at its start by the database's clock, whoever died before."""

import signal
from datetime import datetime, timedelta
from typing import Any

import pytest

from services.embedded.processes import free_port
from shared.core.instants import ms
from shared.jobs.rules.jobs import Job, JobStatus
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer, an_app, customer
from tests.waiting import until

__all__ = ["customer"]

pytestmark = [pytest.mark.e2e, pytest.mark.native]

DEVICES = 1_500


async def start_in(house: House, seconds: float) -> int:
    """So many seconds from now, by the database's clock, in ns."""
    return ms(await house.servers.store.now() + timedelta(seconds=seconds)) * 1_000_000


async def begun_at(house: House, job_id: str) -> datetime:
    """Wait for the job to be begun: the database's time of that move, or of a page of its plan if that was quicker."""
    found: list[Job] = []

    async def is_begun() -> bool:
        job = await house.servers.store.jobs.view(job_id)
        found[:] = [job] if job is not None and job.status is JobStatus.RUNNING else []
        return bool(found)

    await until(is_begun, "the job to be begun")
    assert found[0].changed_at is not None
    return found[0].changed_at


async def posted(customer: Customer, app_id: str, **fields: Any) -> dict[str, Any]:
    status, job = await customer.call("POST", f"/apps/{app_id}/jobs?template=welcome", {"service": "apns", **fields})
    assert status == 201, job
    return dict(job)


async def test_a_job_goes_out_at_its_start_and_not_before(house: House, customer: Customer) -> None:
    await house.devices(DEVICES)
    for service in ("worker", "scheduler"):
        await house.start(service)
    app_id = await an_app(house, customer)
    starts_at = await start_in(house, 4)
    job = await posted(customer, app_id, startsAt=starts_at)
    assert (job["status"], job["startsAt"]) == ("", starts_at)
    await house.exactly_once(job["id"], DEVICES)
    # Rendered after its start, to the second that a record tells.
    assert all(record["metadata"]["pushTime"] >= starts_at // 10**9 for record in await house.records(DEVICES))


async def test_the_clock_begins_a_job_on_time(house: House) -> None:
    """Nobody plans it, so what changed it last is its beginning. Upkeep, which would begin it too, does not look."""
    await house.start("scheduler", CARILLON_SCHEDULER_UPKEEP_SECONDS="3600")
    starts_at = await start_in(house, 4)
    job_id = await house.post(starts_at=starts_at, status=JobStatus.SCHEDULED)
    due, begun = house.job(starts_at=starts_at).starts, await begun_at(house, job_id)
    assert begun >= due


async def test_a_job_whose_occurrence_died_with_the_api_is_begun_by_upkeep(house: House) -> None:
    await house.devices(DEVICES)
    job = house.job(starts_at=await start_in(house, 1), status=JobStatus.SCHEDULED)
    await house.servers.store.jobs.add(job)
    for service in ("worker", "scheduler"):
        await house.start(service)
    await house.exactly_once(job.id, DEVICES)


async def test_the_api_dies_between_a_job_and_its_occurrence(house: House) -> None:
    await house.devices(DEVICES)
    port = free_port()
    admin = {"CARILLON_API_PORT": str(port), "CARILLON_API_FIRST_ADMIN": "admin@example.com"}
    api = await house.start("api", fault="api.after_job_insert=kill", **admin)
    customer = Customer(port)
    app_id = await an_app(house, customer)
    starts_at = await start_in(house, 5)
    with pytest.raises(OSError):
        await posted(customer, app_id, startsAt=starts_at)
    assert await api.gone() == -signal.SIGKILL
    (job,) = await house.servers.store.job_lists.page_of_app(app_id, limit=2)
    assert (job.status, job.starts_at) == (JobStatus.SCHEDULED, starts_at)
    for service in ("worker", "scheduler"):
        await house.start(service)
    await house.exactly_once(job.id, DEVICES)


async def test_a_start_that_passes_while_the_job_is_paused_comes_at_resume(house: House, customer: Customer) -> None:
    await house.devices(DEVICES)
    for service in ("worker", "scheduler"):
        await house.start(service)
    app_id = await an_app(house, customer)
    passed, ahead = [await posted(customer, app_id, startsAt=await start_in(house, seconds)) for seconds in (8, 3600)]
    paths = [f"/apps/{app_id}/jobs/{job['id']}" for job in (passed, ahead)]
    for path in paths:
        assert (await customer.call("PUT", f"{path}/pause"))[1]["status"] == "paused"

    async def has_passed() -> bool:
        owners = [f"job/{passed['id']}/start"]
        return not await house.servers.store.occurrences.with_any(owners)

    await until(has_passed, "the start to be fired in vain")
    standing = await house.servers.store.jobs.view(passed["id"])
    assert standing is not None
    assert standing.waits
    for path in paths:
        assert (await customer.call("PUT", f"{path}/resume"))[1]["status"] == ""
    await house.exactly_once(passed["id"], DEVICES)
    waiting = await house.servers.store.jobs.view(ahead["id"])
    assert waiting is not None
    assert waiting.status is JobStatus.SCHEDULED
    assert (await customer.call("PUT", f"{paths[1]}/stop"))[1]["status"] == "stopped"
    stopped = await house.closed(ahead["id"])
    assert stopped.plan.end == 0
    assert await house.servers.store.occurrences.with_any([f"job/{ahead['id']}/start"]) == set()
