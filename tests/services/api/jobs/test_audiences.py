"""Jobs over files and zones, as their makers see them; what becomes of them is told in `tests/e2e`."""

from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from shared.audience.rules.audiences import PushTable
from shared.audience.rules.zones import zones
from shared.jobs.rules.batches import Receipt, Totals
from shared.jobs.rules.groups import Division, Step
from tests.services.api.client import Client
from tests.services.api.conftest import House
from tests.services.api.test_bad_input import is_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOUR = 3_600 * 10**9


async def localized(house: House, app_id: str, **fields: Any) -> dict[str, Any]:
    ask = {"service": "apns", "localized": True, "startsAt": house.clock.now_ns() + 20 * HOUR, **fields}
    reply = await house.admin.post(f"/apps/{app_id}/jobs?template=like", ask)
    assert reply.status == 201, reply.body
    answer: dict[str, Any] = reply.json
    return answer


async def test_a_job_over_a_file_keeps_what_was_asked_for(house: House) -> None:
    app_id = await house.app_with_template()
    path = await house.file("jobs/users.csv", b"id\nu1\n")
    ask = {"service": "apns", "csvPath": path, "controlGroup": 0.25, "filters": {}}
    reply = await house.admin.post(f"/apps/{app_id}/jobs?template=like", ask)
    assert reply.status == 201, reply.body
    assert (reply.json["csvPath"], reply.json["controlGroup"]) == (path, 0.25)
    shown = await house.admin.get(f"/apps/{app_id}/jobs/{reply.json['id']}")
    assert shown.json["csvPath"] == path


async def test_a_localized_job_is_answered_with_the_last_zones_job_and_all_zones(house: House) -> None:
    app_id = await house.app_with_template()
    job = await localized(house, app_id)
    assert [zone["zone"] for zone in job["zones"]] == list(zones())
    assert job["id"] == job["zones"][-1]["jobId"]
    starts = {zone["zone"]: zone["startsAt"] for zone in job["zones"]}
    asked = house.clock.now_ns() + 20 * HOUR
    assert starts["+0545"] == asked - 5 * HOUR - HOUR * 3 // 4
    assert starts["-0330"] == asked + 3 * HOUR + HOUR // 2
    assert starts["+0000"] == starts["rest"] == asked
    listed = await house.admin.get(f"/apps/{app_id}/jobs")
    assert {each["jobGroupId"] for each in listed.json} == {job["jobGroupId"]}
    assert {each["zone"] for each in listed.json} == set(zones())


async def test_skip_leaves_out_the_zones_whose_start_has_passed(house: House) -> None:
    app_id = await house.app_with_template()
    job = await localized(house, app_id, startsAt=house.clock.now_ns() + HOUR, pastTimeStrategy="skip")
    assert [zone["zone"] for zone in job["zones"]][-2:] == ["+0000", "rest"]
    assert min(zone["startsAt"] for zone in job["zones"]) > house.clock.now_ns()


async def test_the_same_localized_request_makes_one_group(house: House) -> None:
    app_id = await house.app_with_template()
    ask = {"service": "apns", "localized": True, "startsAt": house.clock.now_ns() + 20 * HOUR}
    path = f"/apps/{app_id}/jobs?template=like"
    replies = [await house.admin.post(path, ask, Idempotency_Key="zones") for _ in range(2)]
    assert [reply.status for reply in replies] == [201, 200]
    assert replies[0].json["zones"] == replies[1].json["zones"]
    other = await house.admin.post(path, ask | {"context": {"a": 1}}, Idempotency_Key="zones")
    is_problem(other, 422, "Idempotency-Key")
    assert len((await house.admin.get(f"/apps/{app_id}/jobs")).json) == len(zones())


async def test_a_group_is_shown_paused_resumed_and_stopped(house: House) -> None:
    app_id = await house.app_with_template()
    job = await localized(house, app_id)
    path = f"/apps/{app_id}/groups/{job['jobGroupId']}"
    shown = await house.admin.get(path)
    assert [zone["jobId"] for zone in shown.json["zones"]] == [zone["jobId"] for zone in job["zones"]]
    for move, status in (("pause", "paused"), ("resume", ""), ("stop", "stopped")):
        moved = await house.admin.put(f"{path}/{move}")
        assert moved.status == 200
        assert {zone["status"] for zone in moved.json["zones"]} == {status}
    other = await house.app("other")
    is_problem(await house.admin.get(f"/apps/{other}/groups/{job['jobGroupId']}"), 404, "groupId")
    is_problem(await house.admin.get(f"/apps/{app_id}/groups/nonsense"), 422, "groupId")


async def test_the_division_of_a_group_goes_with_its_app(house: House) -> None:
    app_id = await house.app_with_template()
    made = await localized(house, app_id)
    job = await house.store.jobs.view(made["id"])
    assert job is not None
    division = await house.store.divisions.begin(Division(id=job.file_plan_id, source=PushTable(1), size=1))
    stopped = await house.admin.put(f"/apps/{app_id}/groups/{made['jobGroupId']}/stop")
    for zone in stopped.json["zones"]:
        await house.store.jobs.close(zone["jobId"], totals=Totals(), summed=Receipt(), completed_at=1)
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 204
    assert await house.store.divisions.get(division.id) is None


async def test_the_devices_of_the_rest_are_named_with_values_of_their_zones(house: House) -> None:
    app_id = await house.app_with_template()
    made = await localized(house, app_id)
    job = await house.store.jobs.view(made["id"])
    assert job is not None
    path, values = f"/apps/{app_id}/groups/{made['jobGroupId']}", (None, "Mars/Phobos", "<b>")
    assert (await house.admin.get(path)).json["warnings"] == []
    step = Step(division=job.file_plan_id, number=0, attempt="a", edge=1, sizes={"rest": [5, 2]}, rest_values=values)
    await house.store.divisions.add_step(replace(step, last=True))
    [warning] = (await house.admin.get(path)).json["warnings"]
    told = "7 devices are in the zone rest, which starts with UTC, because tz names no time zone: none, 'Mars/Phobos', "
    assert warning == f"{told}'<b>'."
    page = await house.admin.get(f"/ui/groups/{app_id}/{made['jobGroupId']}")
    assert "names no time zone: none, &#39;Mars/Phobos&#39;, &#39;&lt;b&gt;&#39;." in page.body.decode()


async def test_filters_stay_as_they_were_written(house: House) -> None:
    app_id = await house.app_with_template()
    ask = {"service": "apns", "filters": {"locale": "EN,Pt", "NOTregion": "gb", "tz": "Abc"}}
    reply = await house.admin.post(f"/apps/{app_id}/jobs?template=like", ask)
    assert reply.status == 201, reply.body
    assert reply.json["filters"] == ask["filters"]


async def test_a_file_is_put_where_uploadurl_says(house: House) -> None:
    app_id = await house.app_with_template()
    given = (await house.admin.get("/uploadurl")).json
    url, csv_path = given["url"], given["csvPath"]
    place = url.removeprefix(f"{urlsplit(url).scheme}://{urlsplit(url).netloc}")
    nobody = Client(house.admin.app, {})
    assert (await nobody.send("PUT", place, b"id\nu1\n")).status == 204
    reply = await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns", "csvPath": csv_path})
    assert reply.status == 201, reply.body
    assert (await nobody.send("PUT", place.replace("signature=", "signature=0"), b"x")).status == 403
    assert (await nobody.send("PUT", place, b"x" * 101)).status in {413, 422}
