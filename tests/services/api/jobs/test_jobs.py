"""Jobs over HTTP, as Marathon's clients use them."""

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from shared.audience.rules.audiences import KeyRange, PushTable
from shared.core.errors import Unavailable
from shared.jobs.rules.batches import Batch, Receipt, Totals
from shared.jobs.rules.jobs import SPLIT_QUEUE, Job
from tests.services.api.client import Client, Reply
from tests.services.api.conftest import House
from tests.services.api.test_bad_input import is_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB = {"service": "apns", "filters": {"locale": "en"}, "context": {"user": "Ana"}, "metadata": {"campaign": "x"}}

# Every field that Marathon's own Go client declares, as it encodes a job of which only some are set.
GO_CLIENT = b"""{"id":"00000000-0000-0000-0000-000000000000","totalBatches":0,"completedBatches":0,"totalUsers":0,
"completedUsers":0,"totalTokens":0,"completedTokens":0,"dbPageSize":0,"localized":false,"completedAt":0,"expiresAt":0,"startsAt":0,
"context":{"user":"Ana"},"service":"gcm","filters":null,"metadata":null,"csvPath":"","createdBy":"","app":{"id":
"00000000-0000-0000-0000-000000000000","name":"","bundleId":"","createdBy":"","createdAt":0,"updatedAt":0},"appId":
"00000000-0000-0000-0000-000000000000","jobGroupId":"00000000-0000-0000-0000-000000000000","templateName":"","pastTimeStrategy":
"","status":"","feedbacks":null,"controlGroup":0,"controlGroupCsvPath":"","createdAt":0,"updatedAt":0,"statusEvents":null}
"""


async def _post(house: House, app_id: str, body: object = None, template: str = "like", **headers: str) -> Reply:
    return await house.admin.post(f"/apps/{app_id}/jobs?template={template}", JOB if body is None else body, **headers)


async def test_a_job_is_answered_with_every_field_and_its_plan_is_queued(house: House) -> None:
    app_id = await house.app_with_template()
    before = await house.broker.depth(SPLIT_QUEUE)

    reply = await _post(house, app_id)

    assert reply.status == 201
    assert reply.headers["content-type"].lower() == "application/json; charset=utf-8"
    assert reply.body.endswith(b"}\n")
    job = reply.json
    app = job.pop("app")
    assert app["id"] == app_id
    assert app["name"] == "game"
    for field in ("id", "jobGroupId"):
        uuid.UUID(job.pop(field))
    assert job == {
        "totalBatches": 0, "completedBatches": 0, "controlGroup": 0.0, "totalUsers": 0, "completedUsers": 0,
        "totalTokens": 0, "completedTokens": 0, "sent": 0, "failed": 0, "skipped": 0, "heldOut": 0, "unknown": 0,
        "reasons": {}, "locales": {}, "rate": 0.0, "estimatedEnd": 0, "zone": "", "zones": [],
        "failure": "", "dbPageSize": 0, "localized": False, "completedAt": 0, "expiresAt": 0, "startsAt": 0,
        "context": {"user": "Ana"}, "service": "apns", "filters": {"locale": "en"}, "metadata": {"campaign": "x"},
        "csvPath": "", "controlGroupCsvPath": "", "createdBy": "admin@example.com", "appId": app_id,
        "templateName": "like", "name": "like", "kind": "push", "pastTimeStrategy": "", "status": "",
        "state": "running", "feedbacks": {},
        "createdAt": house.clock.now_ns(), "updatedAt": house.clock.now_ns(), "statusEvents": None, "redacted": False,
    }  # fmt: skip
    assert await house.broker.depth(SPLIT_QUEUE) == before + 1


async def test_the_go_client_needs_no_change(house: House) -> None:
    app_id = await house.app_with_template()
    reply = await _post(house, app_id, GO_CLIENT)
    assert reply.status == 201, reply.body
    assert reply.json["id"] != "00000000-0000-0000-0000-000000000000"
    assert reply.json["filters"] == reply.json["metadata"] == {}
    assert reply.json["service"] == "gcm"
    listed = await house.admin.get(f"/apps/{app_id}/jobs?template=like")
    assert [job["id"] for job in listed.json] == [reply.json["id"]]


@pytest.mark.parametrize(
    ("field", "hint"),
    [("filter", "filters"), ("control_group", "controlGroup"), ("csvpaths", "csvPath"), ("startAt", "startsAt")],
)
async def test_a_field_that_nobody_knows_is_refused_with_the_nearest(house: House, field: str, hint: str) -> None:
    app_id = await house.app_with_template()
    for route in ("jobs", "jobs/preview"):
        reply = await house.admin.post(f"/apps/{app_id}/{route}?template=like", JOB | {field: {"locale": "pt"}})
        is_problem(reply, 422, field)
        assert reply.json["reason"] == f"unknown field {field!r}; did you mean {hint}?"
    assert (await house.admin.get(f"/apps/{app_id}/jobs")).json == []


async def test_no_field_is_named_that_is_not_near(house: House) -> None:
    for field in ("rate", "speed", "text"):
        reply = await _post(house, await house.app_with_template(), JOB | {field: 1})
        assert reply.json["reason"] == f"unknown field {field!r}"


async def test_a_field_of_messages_is_refused_in_a_push(house: House) -> None:
    app_id = await house.app_with_template()
    reply = await _post(house, app_id, JOB | {"maxRecipients": 10})
    is_problem(reply, 422, "maxRecipients")
    assert reply.json["reason"] == "maxRecipients needs a credential: a push job has none"


async def test_a_push_may_have_fields_of_messages_with_what_they_are_by_default(house: House) -> None:
    """As generated clients send them."""
    app_id = await house.app_with_template()
    unset = {"share": 1, "locale": "", "duplicates": "", "maxRecipients": 0, "credential": ""}
    assert (await _post(house, app_id, JOB | unset)).status == 201
    is_problem(await _post(house, app_id, JOB | unset | {"share": 2}), 422, "share")


async def test_any_content_type_a_trailing_slash_and_bytes_behind_the_value_are_accepted(house: House) -> None:
    app_id = await house.app_with_template()
    body = b"\n " + json.dumps({"SERVICE": "apns", "Context": {"Kept": 1}}).encode() + b" \xff garbage"
    reply = await house.admin.post(f"/apps/{app_id}/jobs/?template=like", body, content_type="text/plain")
    assert reply.status == 201, reply.body
    assert reply.json["context"] == {"Kept": 1}


async def test_the_answer_to_a_localized_job_names_the_zones_that_start_too_late(house: House) -> None:
    app_id, hour = await house.app_with_template(), 3_600 * 10**9
    starts_at = house.clock.now_ns() + 24 * hour
    body = {"service": "apns", "localized": True, "startsAt": starts_at}
    late = await _post(house, app_id, {**body, "expiresAt": starts_at + 3 * hour})
    assert late.status == 201, late.body
    [entry] = late.json["statusEvents"]
    [event] = entry["events"]
    assert event["message"].startswith("expiresAt lies before the start of the zones -1200, -1100,")
    assert "-0300" in event["message"]
    assert "-0230" not in event["message"]
    stored = await house.store.jobs.get(late.json["id"])
    assert stored is not None
    assert [told.message for told in stored.events] == [event["message"]]
    for lasting in ({}, {"expiresAt": starts_at + 13 * hour}):
        reply = await _post(house, app_id, {**body, **lasting})
        assert (reply.status, reply.json["statusEvents"]) == (201, None)


async def test_a_job_may_bring_its_id_in_any_form_and_only_once(house: House) -> None:
    app_id = await house.app_with_template()
    wanted = uuid.uuid4()
    first = await _post(house, app_id, JOB | {"id": wanted.urn.upper().replace("URN:UUID:", "urn:uuid:")})
    assert first.status == 201
    assert first.json["id"] == str(wanted)
    again = await _post(house, app_id, JOB | {"id": wanted.hex})
    assert (again.status, again.json["field"]) == (409, "id")
    shown = await house.admin.get(f"/apps/{app_id}/jobs/%7B{wanted}%7D")
    assert shown.json["id"] == str(wanted)


async def test_what_users_wrote_comes_out_as_it_went_in(house: House) -> None:
    app_id = await house.app_with_template()
    context = {
        "a.b": "'; DROP TABLE game_apns; --",
        "$set": '"quoted" {{tag}}\n\t\x01',
        "n": [1, -(2**63), 1.5, None, True],
        "é": "😀",
    }
    made = await _post(house, app_id, JOB | {"context": context, "filters": {"region": "'; DROP TABLE x; --"}})
    assert made.status == 201, made.body
    shown = await house.admin.get(f"/apps/{app_id}/jobs/{made.json['id']}")
    assert shown.json["context"] == context
    assert shown.json["filters"] == {"region": "'; DROP TABLE x; --"}


async def test_a_repeated_request_with_its_key_is_answered_with_the_first_job(house: House) -> None:
    app_id = await house.app_with_template()
    body = JOB | {"expiresAt": house.clock.now_ns() + 10**9}
    first = await _post(house, app_id, body, Idempotency_Key="order 7")
    house.clock.advance(60)  # by now the same request would break the rule of expiresAt
    again = await _post(house, app_id, body, Idempotency_Key="order 7")
    assert (first.status, again.status) == (201, 200)
    assert again.json == first.json
    other = await _post(house, app_id, JOB | {"filters": {"tier": "gold"}}, Idempotency_Key="order 7")
    assert (other.status, other.json["field"]) == (422, "Idempotency-Key")
    assert set(other.json["detail"].partition("differs in: ")[2].split(", ")) == {"expiresAt", "filters"}


async def test_a_key_belongs_to_its_caller(house: House) -> None:
    app_id = await house.app_with_template()
    token = (await house.admin.post("/tokens", {"name": "t", "allowedApps": [app_id]})).json["token"]
    mine = await _post(house, app_id, Idempotency_Key="k")
    theirs = await house.admin.service(token).post(f"/apps/{app_id}/jobs?template=like", JOB, Idempotency_Key="k")
    assert (mine.status, theirs.status) == (201, 201)
    assert mine.json["id"] != theirs.json["id"]
    assert theirs.json["createdBy"] == "t"


async def test_many_at_once_with_one_key_make_one_job(house: House) -> None:
    app_id = await house.app_with_template()
    replies = await asyncio.gather(*(_post(house, app_id, Idempotency_Key="race") for _ in range(8)))
    assert sorted(reply.status for reply in replies) == [200] * 7 + [201]
    assert len({reply.json["id"] for reply in replies}) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\there", "é"])
async def test_a_key_outside_its_rule(house: House, key: str) -> None:
    app_id = await house.app_with_template()
    reply = await _post(house, app_id, Idempotency_Key=key)
    assert (reply.status, reply.json["field"]) == (422, "Idempotency-Key")


async def test_pause_resume_and_stop_answer_as_marathon_does(house: House) -> None:
    app_id = await house.app_with_template()
    path = f"/apps/{app_id}/jobs/{(await _post(house, app_id)).json['id']}"

    async def move(verb: str) -> tuple[int, str]:
        reply = await house.admin.put(f"{path}/{verb}")
        return reply.status, reply.json.get("reason", reply.json["status"])

    assert await move("resume") == (403, "cannot resume job with status other than paused/circuitbreak")
    assert await move("pause") == (200, "paused")
    assert await move("pause") == (403, "cannot pause paused job")
    assert await move("resume") == (200, "")
    assert await move("pause") == (200, "paused")
    assert await move("stop") == (200, "stopped")
    assert await move("stop") == (200, "stopped")
    assert await move("pause") == (403, "cannot pause stopped job")
    assert await move("resume") == (403, "cannot resume job with status other than paused/circuitbreak")


async def test_a_completed_job_can_be_neither_paused_nor_stopped(house: House) -> None:
    app_id = await house.app_with_template()
    job_id = (await _post(house, app_id)).json["id"]
    totals = Totals(batches=1, settled=1, planned=10, sent=7, failed=1, skipped=1, held_out=1)
    summed = Receipt(sent=7, failed=1, skipped=1, held_out=1, reasons={"x.y": 2}, locales={"en": 7})
    await house.store.jobs.close(job_id, totals=totals, summed=summed, completed_at=5)

    for verb in ("pause", "stop"):
        reply = await house.admin.put(f"/apps/{app_id}/jobs/{job_id}/{verb}")
        assert (reply.status, reply.json["reason"]) == (403, f"cannot {verb} completed job")
    job = (await house.admin.get(f"/apps/{app_id}/jobs/{job_id}")).json
    assert (job["status"], job["completedAt"]) == ("", 5)
    assert (job["totalTokens"], job["totalUsers"], job["completedTokens"], job["completedUsers"]) == (10, 10, 10, 10)
    assert (job["totalBatches"], job["completedBatches"]) == (1, 1)
    assert (job["sent"], job["failed"], job["skipped"], job["heldOut"]) == (7, 1, 1, 1)
    assert (job["reasons"], job["locales"]) == ({"x.y": 2}, {"en": 7})


async def test_a_job_is_found_only_below_its_app(house: House) -> None:
    app_id, other = await house.app_with_template(), await house.app()
    job_id = (await _post(house, app_id)).json["id"]
    for method, path in [("GET", ""), ("PUT", "/pause"), ("PUT", "/resume"), ("PUT", "/stop")]:
        reply = await house.admin.send(method, f"/apps/{other}/jobs/{job_id}{path}")
        assert (reply.status, reply.json["field"]) == (404, "jobId")
    assert (await house.admin.get(f"/apps/{app_id}/jobs/{job_id}")).json["status"] == ""


async def test_the_list_is_paged_and_keeps_its_filter(house: House) -> None:
    app_id = await house.app_with_template()
    made = [(await _post(house, app_id)).json["id"] for _ in range(5)]
    assert (await house.admin.get(f"/apps/{app_id}/jobs?template=none")).json == []
    seen: list[str] = []
    path = f"/apps/{app_id}/jobs?template=like&limit=2"
    link = ""
    for size in (2, 2, 1):
        reply = await house.admin.get(path)
        assert len(reply.json) == size
        seen += [job["id"] for job in reply.json]
        link = reply.headers.get("link", "")
        path = link.partition("<")[2].partition(">")[0]
    assert link == ""
    assert sorted(seen) == sorted(made)
    assert (await house.admin.get(f"/apps/{uuid.uuid4()}/jobs")).json == []


async def test_an_app_with_open_jobs_stays_and_goes_with_everything_once_they_are_closed(house: House) -> None:
    app_id = await house.app_with_template()
    job_id = (await _post(house, app_id)).json["id"]
    refused = await house.admin.delete(f"/apps/{app_id}")
    assert refused.status == 409
    job = await house.store.jobs.view(job_id)
    assert job is not None
    await house.store.batches.add_page([Batch(job_id=job.key, ordinal=0, range=KeyRange(0, 10), size=10)])
    await house.store.jobs.close(job_id, totals=Totals(), summed=Receipt(), completed_at=1)

    assert (await house.admin.delete(f"/apps/{app_id}")).status == 204

    assert (await house.admin.get(f"/apps/{app_id}")).status == 404
    assert await house.store.jobs.get(job_id) is None
    assert await house.store.batches.last(job.key) is None
    assert await house.store.templates.page(app_id, limit=1) == []


def _between(monkeypatch: pytest.MonkeyPatch, part: object, name: str, then: Callable[[Any], Any]) -> None:
    """Have `then` happen right after this step of the store, as if another process did it."""
    step = getattr(part, name)

    async def both(*arguments: Any) -> Any:
        done = await step(*arguments)
        await then(arguments[0])
        return done

    monkeypatch.setattr(part, name, both)


async def test_a_job_that_is_made_while_its_app_is_being_deleted_is_taken_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = await house.app_with_template()
    _between(monkeypatch, house.store.jobs, "add", lambda _: house.store.apps.begin_removal(app_id))
    refused = await _post(house, app_id)
    assert (refused.status, refused.json["field"]) == (409, "appId")
    assert (await house.admin.get(f"/apps/{app_id}/jobs")).json == []
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 204


async def test_a_job_that_is_planned_already_while_its_app_is_being_deleted_is_stopped(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = await house.app_with_template()

    async def planned(job: Job) -> None:
        await house.store.jobs.begin_plan(job.id, source=PushTable(10), templates=())
        await house.store.apps.begin_removal(app_id)

    _between(monkeypatch, house.store.jobs, "add", planned)
    assert (await _post(house, app_id)).status == 409
    (job,) = (await house.admin.get(f"/apps/{app_id}/jobs")).json
    assert job["status"] == "stopped"
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 409
    await house.store.jobs.close(job["id"], totals=Totals(), summed=Receipt(), completed_at=1)
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 204


async def test_a_deletion_leaves_every_unfinished_job_and_the_app_of_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id, other = await house.app_with_template(), await house.app_with_template()
    made = await _post(house, other)
    late = await house.store.jobs.get(made.json["id"])
    assert late is not None
    late = replace(late, id=str(uuid.uuid4()), app_id=app_id)
    _between(monkeypatch, house.store.templates, "remove_of", lambda _: house.store.jobs.add(late))
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 409
    assert await house.store.jobs.get(late.id) is not None
    assert (await house.admin.get(f"/apps/{app_id}")).status == 200


async def test_a_deletion_that_was_cut_off_is_done_by_the_next(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    app_id = await house.app_with_template()

    async def cut_off(_: str) -> None:
        raise Unavailable("the server went away")

    _between(monkeypatch, house.store.templates, "remove_of", cut_off)
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 503
    assert (await house.admin.get(f"/apps/{app_id}")).status == 200
    template = {"name": "like", "locale": "en", "body": {"alert": "x"}}
    for path, body in (("templates", template), ("jobs?template=like", JOB)):
        refused = await house.admin.post(f"/apps/{app_id}/{path}", body)
        assert (refused.status, refused.json["field"]) == (409, "appId")
    monkeypatch.undo()
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 204
    assert (await house.admin.get(f"/apps/{app_id}")).status == 404


async def test_lists_leave_the_copied_templates_where_they_are(house: House) -> None:
    app_id = await house.app_with_template()
    job_id = (await _post(house, app_id)).json["id"]
    templates = tuple(await house.store.templates.find_named(app_id, ["like"]))
    await house.store.jobs.begin_plan(job_id, source=PushTable(10), templates=templates)
    assert [job["id"] for job in (await house.admin.get(f"/apps/{app_id}/jobs")).json] == [job_id]
    assert (await house.admin.put(f"/apps/{app_id}/jobs/{job_id}/pause")).json["status"] == "paused"


async def test_rights(house: House) -> None:
    app_id, other = await house.app_with_template(), await house.app_with_template()
    await house.admin.post("/users", {"email": "dev@example.com", "allowedApps": [app_id]})
    dev: Client = house.admin.someone("dev@example.com")
    assert (await dev.post(f"/apps/{app_id}/jobs?template=like", JOB)).status == 201
    assert (await dev.post(f"/apps/{other}/jobs?template=like", JOB)).status == 403
    assert (await dev.get(f"/apps/{other}/jobs")).status == 403
    assert (await dev.get("/apps/nonsense/jobs")).status == 422
