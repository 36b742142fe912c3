"""A localized push whose POST dies half-way: the group is complete in the end, and no zone is there twice."""

import asyncio
import contextlib
import urllib.error
from http.client import RemoteDisconnected
from typing import Any

import pytest

from services.embedded.processes import free_port
from shared.audience.rules.zones import zones
from shared.jobs.rules.jobs import JobStatus
from tests.e2e.house import House
from tests.e2e.test_localized import spread
from tests.e2e.test_over_http import Customer, an_app, customer
from tests.tiers import and_rarely
from tests.waiting import until

__all__ = ["customer"]

pytestmark = [pytest.mark.chaos, pytest.mark.native]

DAY = 86_400
KEY = {"Idempotency-Key": "the-one"}


@pytest.mark.parametrize("repeated", [True, False], ids=["repeated", "left_to_upkeep"])
@pytest.mark.parametrize(
    "point", and_rarely("group.after_jobs", rarely=("api.after_group_insert", "group.before_made"))
)
async def test_a_post_dies_half_way(house: House, customer: Customer, point: str, repeated: bool) -> None:
    await spread(house, 200)
    app_id = await an_app(house, customer)
    doomed, port = None, free_port()
    doomed = await house.start(
        "api", fault=f"{point}=kill", CARILLON_API_PORT=str(port), CARILLON_API_FIRST_ADMIN="admin@example.com"
    )
    # Over an hour ago in every zone: all jobs start a day later, and that is over as well.
    starts_at = house.servers.clock.now_ns() - 3 * DAY * 10**9
    ask: dict[str, Any] = {"service": "apns", "localized": True, "startsAt": starts_at}
    path = f"/apps/{app_id}/jobs?template=welcome"
    with contextlib.suppress(urllib.error.URLError, RemoteDisconnected, ConnectionError):
        await Customer(port).call("POST", path, ask, **KEY)
    assert await doomed.gone() < 0
    await asyncio.gather(house.start("scheduler"), house.start("worker"))
    if repeated:
        status, job = await customer.call("POST", path, ask, **KEY)
        assert status == 200, job
        assert len(job["zones"]) == len(zones())
    group_id = await the_group(house)
    _, group = await customer.call("GET", f"/apps/{app_id}/groups/{group_id}")
    await until(lambda: all_ended(customer, app_id, group_id), "all zones to complete")
    _, group = await customer.call("GET", f"/apps/{app_id}/groups/{group_id}")
    assert [zone["zone"] for zone in group["zones"]] == list(zones())
    assert (group["totalTokens"], group["sent"]) == (200, 200)
    jobs = [job for each in group["zones"] if (job := await house.servers.store.jobs.view(each["jobId"]))]
    assert {job.status for job in jobs} == {JobStatus.COMPLETED}
    _, listed = await customer.call("GET", f"/apps/{app_id}/jobs")
    assert len(listed) == len(zones())
    per_device = await house.sent_per_device(200)
    assert len(per_device) == 200
    assert set(per_device.values()) == {1}


async def the_group(house: House) -> str:
    documents = [document async for document in house.servers.store.groups._groups.find({}, {"_id": 1})]
    assert len(documents) == 1
    return str(documents[0]["_id"])


async def all_ended(customer: Customer, app_id: str, group_id: str) -> bool:
    _, group = await customer.call("GET", f"/apps/{app_id}/groups/{group_id}")
    return len(group["zones"]) == len(zones()) and all(zone["completedAt"] for zone in group["zones"])
