"""A caller may choose the id of a job, and may use it again once its app was deleted: nothing of the earlier job
reaches the later one. An id is a job's or a group's."""

import signal
import uuid
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from shared.jobs.moves import fresh_incarnation, start_of
from shared.jobs.rules.jobs import JobStatus
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer, an_app, customer, is_completed
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.native]
__all__ = ["customer"]

HOUR_NS = 3_600 * 10**9


async def post(customer: Customer, app_id: str, job_id: str, **fields: Any) -> str:
    """The path of the job."""
    body = {"id": job_id, "service": "apns", **fields}
    status, job = await customer.call("POST", f"/apps/{app_id}/jobs?template=welcome", body)
    assert status == 201, job
    return f"/apps/{app_id}/jobs/{job_id}"


async def completed(customer: Customer, path: str) -> Any:
    await until(lambda: is_completed(customer, path), "the job")
    return (await customer.call("GET", path))[1]


async def test_the_later_job_sends_its_own_message_to_its_own_audience(house: House, customer: Customer) -> None:
    await house.devices(300)
    for service in ("worker", "scheduler"):
        await house.start(service)
    job_id = str(uuid.uuid4())
    app_id = await an_app(house, customer)
    path = await post(customer, app_id, job_id, filters={"locale": "en"}, context={"who": "old"})
    await completed(customer, path)
    earlier = await house.records(200)
    assert (await customer.call("DELETE", f"/apps/{app_id}"))[0] == 204

    app_id = await an_app(house, customer)
    path = await post(customer, app_id, job_id, filters={"locale": "pt"}, context={"who": "new"})
    job = await completed(customer, path)

    # A receiver that drops what it has seen by its message id drops none of these.
    seen = {record["metadata"]["muid"] for record in earlier}
    records = [record for record in await house.records(300) if record["metadata"]["muid"] not in seen]
    assert Counter(record["Payload"]["aps"]["alert"] for record in records) == {"Ola new": 100}
    assert (job["sent"], {record["metadata"]["jobId"] for record in records}) == (100, {job_id})
    assert len(seen | {record["metadata"]["muid"] for record in records}) == 300


@pytest.mark.slow
async def test_markers_of_the_earlier_job_stand_in_nobodys_way(house: House, customer: Customer) -> None:
    await house.devices(40_000)  # 40 batches: the markers of eight slots end behind the first batches
    first = await house.start("worker")
    await house.start("scheduler")
    job_id = str(uuid.uuid4())
    app_id = await an_app(house, customer)
    await completed(customer, await post(customer, app_id, job_id))
    assert (await customer.call("DELETE", f"/apps/{app_id}"))[0] == 204
    await first.end()
    app_id = await an_app(house, customer)

    doomed = await house.start("worker", fault="send.in_transaction=kill")
    path = await post(customer, app_id, job_id)
    assert await doomed.gone() == -signal.SIGKILL
    await house.start("worker")

    job = await completed(customer, path)
    assert (job["sent"], job["failed"]) == (40_000, 0)
    per_device = await house.sent_per_device(80_000)
    assert set(per_device.values()) == {2}


async def test_a_start_that_was_left_behind_begins_no_later_job(house: House) -> None:
    now = house.servers.clock.now_ns()
    earlier = house.job(starts_at=now + HOUR_NS, status=JobStatus.SCHEDULED)
    await house.jobs.start(earlier)
    await house.servers.store.open_jobs.withdraw(earlier.key)
    later = replace(house.job(starts_at=now + 2 * HOUR_NS, status=JobStatus.SCHEDULED), id=earlier.id)
    await house.jobs.start(later)

    await house.jobs.begin(earlier.key)

    found = await house.servers.store.jobs.view(earlier.id)
    assert found is not None
    assert found.status is JobStatus.SCHEDULED
    starts = [await house.servers.store.occurrences.with_any([start_of(job.key)]) for job in (earlier, later)]
    assert all(starts)


async def test_a_planner_of_the_earlier_job_that_wakes_up_late_changes_nothing(house: House) -> None:
    await house.devices(3_000)
    await house.servers.stream.setup({house.topic: 2})
    earlier = house.job(filters={"locale": "pt"})
    await house.jobs.start(earlier)
    sleeper = await house.start("worker", fault="plan.before_end=stop")
    await sleeper.reached("plan.before_end")
    # What DELETE of its app does, once it was stopped and closed.
    store = house.servers.store
    await store.batches.remove_of([earlier.key])
    await store.jobs._jobs.delete_one({"_id": earlier.id})
    later = replace(earlier, incarnation=fresh_incarnation(), filters={"locale": "en"})
    await house.jobs.start(later)
    await house.start("worker")
    sleeper.send(signal.SIGCONT)
    await house.start("scheduler")

    job = await house.closed(later.key)

    assert job.totals is not None
    assert (job.status, job.totals.sent) == (JobStatus.COMPLETED, 2_000)


async def test_an_id_is_a_jobs_or_a_groups(house: House, customer: Customer) -> None:
    await house.devices(100)
    app_id = await an_app(house, customer)
    of_group, of_job = str(uuid.uuid4()), str(uuid.uuid4())
    starts_at = house.servers.clock.now_ns() + 48 * HOUR_NS
    localized: dict[str, Any] = {"localized": True, "startsAt": starts_at}
    path = f"/apps/{app_id}/jobs?template=welcome"
    posts = [({"id": of_group} | localized, 201), ({"id": of_group}, 409), ({"id": of_group} | localized, 409)]
    posts += [({"id": of_job}, 201), ({"id": of_job} | localized, 409), ({"id": of_job}, 409)]
    for body, expected in posts:
        status, answer = await customer.call("POST", path, {"service": "apns"} | body)
        assert (status, answer.get("field")) == (expected, "id" if expected == 409 else None), answer
