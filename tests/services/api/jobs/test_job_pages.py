"""The pages of jobs: what they show to whom, and what their forms do."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.api.http.pages.pictures import StripBlock, day_strip
from services.api.jobs.pages.job import chart_of, day_axis, events_of, strip_blocks, zone_rows
from services.api.jobs.pages.job_list import show_job
from shared.audience.rules.audiences import KeyRange, PushTable
from shared.jobs.rules.batches import Batch
from shared.jobs.rules.groups import Division, Step
from tests.services.api.client import Client
from tests.services.api.conftest import House
from tests.services.api.jobs.seen import Seen, look, press
from tests.services.api.jobs.test_batches import NOON, job_with_batches, settle

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}"
SECOND, HOUR = 10**9, 3_600 * 10**9
_people = itertools.count()


async def person(house: House, role: str, app_id: str) -> Client:
    email = f"{role}{next(_people)}@example.com"
    made = await house.admin.post("/users", {"email": email, "roles": {f"app/{app_id}": role}})
    assert made.status == 201, made.body
    return house.admin.someone(email)


async def job_of(house: House, app_id: str, template: str = "like", **fields: Any) -> dict[str, Any]:
    made = await house.admin.post(f"/apps/{app_id}/jobs?template={template}", {"service": "apns", **fields})
    assert made.status == 201, made.body
    return dict(made.json)


async def state_of(house: House, app_id: str, job_id: str) -> str:
    return str((await house.admin.get(f"/apps/{app_id}/jobs/{job_id}")).json["state"])


def far(house: House) -> int:
    return house.clock.now_ns() + 1_000 * HOUR


async def test_the_list_shows_jobs_and_takes_filters(house: House) -> None:
    app_id = await house.app_with_template()
    empty = await look(house.admin, f"/jobs?app={app_id}")
    assert "No job matches these filters." in empty.text
    assert "/ui/jobs/new" in empty.links
    job = await job_of(house, app_id)
    await job_of(house, app_id, startsAt=far(house))
    seen = await look(house.admin, f"/jobs?app={app_id}")
    assert f"/ui/jobs/{app_id}/{job['id']}" in seen.links
    assert {"running", "waiting"} <= set(seen.words)
    assert seen.refreshes
    running = await look(house.admin, f"/jobs?app={app_id}&status=running&since=2026-01-01T00:00&by=admin@example.com")
    assert sum(link.startswith(f"/ui/jobs/{app_id}") for link in running.links) == 1
    older = await look(house.admin, f"/jobs?app={app_id}&until=2026-01-01T00:00")
    assert "No job matches these filters" in older.text
    wrong = await look(house.admin, f"/jobs?app={app_id}&since=someday")
    assert "since" in wrong.text
    assert wrong.values["since"] == "someday"
    assert not wrong.refreshes


async def test_zones_of_a_localized_push_are_one_line_of_the_list(house: House) -> None:
    app_id = await house.app_with_template()
    job = await job_of(house, app_id, localized=True, startsAt=house.clock.now_ns() + 30 * HOUR)
    seen = await look(house.admin, f"/jobs?app={app_id}")
    assert f"/ui/groups/{app_id}/{job['jobGroupId']}" in seen.links
    assert not [link for link in seen.links if link.startswith(f"/ui/jobs/{app_id}/")]
    assert len((await house.admin.get(f"/jobs?app={app_id}")).json) > 30


async def test_hostile_names_are_text(house: House) -> None:
    app_id = await house.app()
    template = {"name": HOSTILE, "locale": "en", "body": {"alert": "{{x}}"}, "defaults": {}}
    assert (await house.admin.post(f"/apps/{app_id}/templates", template)).status == 201
    name = "%3Cscript%3Ealert(1)%3C/script%3E%22'%26%7B%7B7*7%7D%7D"
    job = await job_of(house, app_id, name, context={"x": HOSTILE}, metadata={HOSTILE: HOSTILE})
    plain = (await look(house.admin, f"/jobs?template={name}")).tags.count("script")
    for path in ("", "?show=samples", "?show=details", f"?show={HOSTILE.replace('&', '')}"):
        seen = await look(house.admin, f"/jobs/{app_id}/{job['id']}{path}")
        assert seen.tags.count("script") == plain
        assert HOSTILE in seen.text


async def test_a_job_is_shown_with_its_batches_and_what_failed(house: House) -> None:
    path, job = await job_with_batches(house)
    await settle(house, job, 2, NOON, sent=90, failed=10)
    await settle(house, job, 4, NOON + timedelta(seconds=2), sent=70, skipped=20, held_out=10)
    page = path.replace("/apps/", "/jobs/", 1).replace("/jobs/" + job.id, "/" + job.id)
    seen = await look(house.admin, page)
    assert {"160", "10", "no-template"} <= set(seen.words)
    assert "Created by admin@example.com" in seen.text
    batches = await look(house.admin, f"{page}?show=batches&state=failed")
    assert {"failed", "no-template", "90"} <= set(batches.words)
    assert "2 of 7 settled" in batches.text


async def test_a_job_is_paused_resumed_and_stopped_by_its_page(house: House) -> None:
    app_id = await house.app_with_template()
    job_id = (await job_of(house, app_id))["id"]
    page = f"/jobs/{app_id}/{job_id}"
    operator = await person(house, "operator", app_id)
    for move, state in (("pause", "paused"), ("resume", "running"), ("stop", "stopped")):
        moved = await press(operator, f"{page}/{move}", reason="enough")
        assert moved.status == 303, moved.body
        assert moved.headers["location"].startswith(f"/ui{page}?said=")
        assert await state_of(house, app_id, job_id) == state
    [record] = (await house.admin.get(f"/audit?on={job_id}&act=job.stop")).json
    assert record["reason"] == "enough"
    again = await press(operator, f"{page}/pause")
    assert again.status == 409
    assert "Cannot pause stopped job" in Seen(again.body.decode()).text


async def test_stopping_for_many_devices_needs_a_name(house: House) -> None:
    path, job = await job_with_batches(house)
    batches = house.store._database["batches"]
    await batches.update_many({"job_id": job.key}, {"$set": {"size": 20_000}})
    assert (await house.admin.put(f"{path}/pause")).status == 200
    page = f"/jobs/{job.app_id}/{job.id}"
    assert "140,000 of the 140,000 devices" in (await look(house.admin, page)).text
    refused = await press(house.admin, f"{page}/stop", reason="too+many", named="gam")
    seen = Seen(refused.body.decode())
    assert (refused.status, seen.values["reason"], seen.values["named"]) == (422, "too many", "gam")
    assert await state_of(house, job.app_id, job.id) == "paused"
    assert (await press(house.admin, f"{page}/stop", named="game")).status == 303
    assert await state_of(house, job.app_id, job.id) == "stopped"


async def test_a_viewer_sees_neither_acts_nor_what_is_personal(house: House) -> None:
    app_id = await house.app_with_template()
    job = await job_of(house, app_id, context={"user": "Ana-Sophia"}, filters={"region": "Hidden-Town"})
    viewer, page = await person(house, "viewer", app_id), f"/jobs/{app_id}/{job['id']}"
    for path in ("", "?show=samples", "?show=details"):
        seen = await look(viewer, page + path)
        assert not [form for form in seen.forms if app_id in form]
        assert "Ana-Sophia" not in seen.html
        assert "Hidden-Town" not in seen.html
        assert "Sample messages" not in seen.text
    assert "/ui/jobs/new" not in (await look(viewer, "/jobs")).links
    assert (await press(viewer, f"{page}/stop")).status == 403
    assert await state_of(house, app_id, job["id"]) == "running"
    stranger = await person(house, "operator", await house.app())
    await look(stranger, page, 403)


async def test_a_page_asks_for_itself_until_its_job_has_ended(house: House) -> None:
    app_id = await house.app_with_template()
    job_id = (await job_of(house, app_id, startsAt=far(house)))["id"]
    page = f"/jobs/{app_id}/{job_id}"
    assert (await look(house.admin, page)).refreshes
    assert (await house.admin.get(f"/ui{page}?said=resumed", hx_request="true")).body.startswith(b"<div")
    await press(house.admin, f"{page}/stop")
    await asyncio.sleep(1)  # so long refreshes share what was read
    last = await house.admin.get(f"/ui{page}?said=resumed", hx_request="true")
    assert (last.status, last.body, last.headers["hx-redirect"]) == (200, b"", f"/ui{page}")
    assert not (await look(house.admin, page)).refreshes


async def test_a_localized_push_is_seen_and_moved_as_one(house: House) -> None:
    app_id = await house.app_with_template()
    made = await job_of(house, app_id, localized=True, startsAt=house.clock.now_ns() + 30 * HOUR)
    group, page = made["jobGroupId"], f"/groups/{app_id}/{made['jobGroupId']}"
    seen = await look(house.admin, page)
    assert {"UTC+05:45", "UTC\N{MINUS SIGN}12:00", "no zone"} <= set(seen.words)
    assert seen.tags.count("rect") == len(made["zones"])
    assert (await press(house.admin, f"{page}/pause")).status == 303
    paused = await look(house.admin, page)
    assert f"/ui{page}/resume" in paused.forms
    assert f"/ui{page}/pause" not in paused.forms
    assert (await press(house.admin, f"{page}/stop", named="")).status == 422
    assert (await press(house.admin, f"{page}/stop", named="game")).status == 303
    zones = (await house.admin.get(f"/apps/{app_id}/groups/{group}")).json["zones"]
    assert {zone["status"] for zone in zones} == {"stopped"}
    ended = await look(house.admin, page)
    assert not [form for form in ended.forms if app_id in form]
    assert not ended.refreshes
    viewer = await look(await person(house, "viewer", app_id), page)
    assert not [form for form in viewer.forms if app_id in form]


async def test_a_localized_push_shows_the_devices_of_its_zones_and_folds_those_without(house: House) -> None:
    app_id = await house.app_with_template()
    made = await job_of(house, app_id, localized=True, startsAt=house.clock.now_ns() + 30 * HOUR)
    page, count = f"/groups/{app_id}/{made['jobGroupId']}", len(made["zones"])
    job = await house.store.jobs.view(made["id"])
    assert job is not None
    division = await house.store.divisions.begin(Division(id=job.file_plan_id, source=PushTable(667), size=400))
    sizes = {"+0545": [334], "rest": [333]}
    await house.store.divisions.add_step(
        Step(division=division.id, number=0, attempt="a", edge=667, sizes=sizes, last=True)
    )
    seen = await look(house.admin, page)
    assert {"334", "333", f"{count - 2} zones without devices"} <= {word.removeprefix("of ") for word in seen.words}
    assert "to come 667" in seen.text
    assert f"Zones started 0 of {count}" in seen.text
    await press(house.admin, f"{page}/stop", named="game")
    assert f"Zones started 0 of {count}" in (await look(house.admin, page)).text


async def test_the_page_of_a_zones_job_says_whom_it_reaches(house: House) -> None:
    app_id = await house.app_with_template()
    zone = await job_of(house, app_id, localized=True, startsAt=house.clock.now_ns() + 30 * HOUR)
    told = (await look(house.admin, f"/jobs/{app_id}/{zone['id']}")).text
    assert "fixed when the first zone starts" in told and "includes devices that register" not in told
    job = await job_of(house, app_id, startsAt=far(house))
    assert "includes devices that register" in (await look(house.admin, f"/jobs/{app_id}/{job['id']}")).text


async def test_the_list_tells_the_share_of_devices_that_a_localized_push_has_reached(house: House) -> None:
    app_id = await house.app_with_template()
    made = await job_of(house, app_id, localized=True, startsAt=house.clock.now_ns() + 30 * HOUR)
    job = await house.store.jobs.view(made["zones"][0]["jobId"])
    assert job is not None
    await house.store.jobs.begin_plan(job.key, source=PushTable(highest=2), templates=())
    batches = [Batch(job_id=job.key, ordinal=n, range=KeyRange(n, n + 1), size=100) for n in range(2)]
    assert await house.store.batches.add_page(batches)
    assert await house.store.batches.add_end(job.key, 2)
    await settle(house, job, 0, NOON, sent=100)
    seen = await look(house.admin, f"/jobs?app={app_id}")
    assert "in zones that have started" in seen.text and "zones have ended" in seen.text


def at(second: int) -> int:
    return (1_800_000_000 + second) * SECOND


def some_job(**fields: Any) -> dict[str, Any]:
    bare = {"state": "running", "failure": "", "startsAt": 0, "createdAt": at(0), "updatedAt": at(0), "completedAt": 0}
    return bare | {"createdBy": "ana", "totalTokens": 10, "completedTokens": 0, "statusEvents": None} | fields


def event(second: int, state: str = "success", message: str = "", by: str = "ana") -> dict[str, Any]:
    return {"createdAt": at(second), "state": state, "message": message, "by": {"kind": "user", "name": by}}


async def test_how_a_job_stands_is_said_in_words() -> None:
    assert show_job(some_job(state="circuitbreak")).word == "tripped"
    failed, expired = show_job(some_job(state="failed")), show_job(some_job(state="expired"))
    assert (failed.word, failed.has_ended, failed.may_stop) == ("failed", True, False)
    assert (expired.word, expired.has_ended, expired.may_stop) == ("expired", True, False)
    held = show_job(some_job(state="paused", startsAt=at(60), totalTokens=0))
    assert (held.word, held.waits, held.may_resume) == ("paused", True, True)
    never = show_job(some_job(state="stopped", startsAt=at(60), updatedAt=at(9), totalTokens=0))
    assert (never.began, never.may_stop) == (None, False)


async def test_a_chart_is_flat_while_its_job_is_held() -> None:
    stages = [
        {"name": "process_batch_worker", "events": [event(2, "fail", "3 of 9 batches failed")]},
        {"name": "job_resumed", "events": [event(7)]},
    ]
    told = events_of(some_job(statusEvents=stages))
    assert [each.label for each in told] == ["Created", "Tripped", "Resumed"]
    points = [{"at": f"2027-01-15T08:00:0{second}Z", "perSecond": 5.0} for second in (0, 1, 2)]
    chart = chart_of(points, told)
    assert chart is not None
    assert list(chart.rates) == [5.0] * 3 + [0.0] * 5
    assert [(round(mark.at, 2), mark.tone) for mark in chart.marks] == [(0.29, "bad"), (1.0, "mark")]
    assert chart_of([], told) is None


async def test_all_zones_lie_on_the_strip_of_a_day() -> None:
    zones = [
        {"zone": zone, "startsAt": at(hour * 3_600), "state": "running", "completedAt": 0, "failure": "", "jobId": zone}
        | {"totalTokens": 4, "completedTokens": 1, "devices": 4}
        for zone, hour in (("+1400", -14), ("+0000", 0), ("-1200", 12), ("rest", 0))
    ]
    rows = zone_rows({"zones": zones, "createdAt": at(0)})
    axis = day_axis(rows)
    assert axis.begin == datetime(2027, 1, 14, 18, tzinfo=UTC)
    assert axis.length == timedelta(hours=28)
    blocks = strip_blocks(rows, axis)
    assert [(round(block.at, 2), block.lane) for block in blocks] == [(0.0, 0), (0.5, 0), (0.5, 1), (0.93, 1)]
    drawn = day_strip([StripBlock(0.5, 0.5, "busy", '<b a="1">')], says="a day", now=0.25)
    assert "<b" not in drawn
    assert drawn.count("<rect") == 2
