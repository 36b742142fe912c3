"""Schedules that start jobs: how they are checked when they are made, and what workers do when they are due."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from services.wiring import workers
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from services.worker.clock import start
from shared.clock.rules.callbacks import CallTarget
from shared.clock.rules.occurrences import Occurrence
from shared.clock.rules.schedules import owner_of, schedule_id
from shared.clock.store_occurrences import fresh_token
from shared.core.instants import format_instant
from shared.jobs.rules.jobs import FinishJob
from shared.time import DatabaseTime
from tests.services.api.client import Client, Reply
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

DAY = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
PAYLOAD = {"service": "apns", "filters": {"locale": "en"}, "context": {"user": "Ana"}}


def weekly(app: str, key: str, **data: Any) -> dict[str, Any]:
    callback = {"type": "job", "data": {"app_id": app, "template": "like", "payload": PAYLOAD} | data}
    return {"key": key, "schedules": [format_instant(DAY + timedelta(seconds=n)) for n in range(30)]} | {
        "callback": callback
    }


class Due:
    """The occurrences of a schedule, which workers attempt when the test says so."""

    def __init__(self, house: House, namespace: str, key: str) -> None:
        self._house = house
        self._owner = owner_of(schedule_id(namespace, key))
        self._callbacks = workers.worker_callbacks(Rooms(Servers(**vars(house.servers))))
        self._time = DatabaseTime(house.store)

    @property
    def starts(self) -> start.JobStarts:
        return self._callbacks.starts

    async def occurrences(self, most: int = 30) -> list[Occurrence]:
        return await self._house.store.occurrences.find_upcoming(self._owner, most)

    async def attempt(self, occurrence: Occurrence) -> None:
        """Have a worker attempt it, as if a scheduler had handed it over."""
        token, leased_until = fresh_token(), await self._time.now() + timedelta(minutes=1)
        await self._house.store.occurrences._occurrences.update_one(
            {"_id": occurrence.id}, {"$set": {"token": token, "visible_at": leased_until}}
        )
        await self._callbacks.run(CallTarget(occurrence.id, token))


async def due(house: House, caller: Client, app_id: str, key: str, **data: Any) -> Due:
    made = await caller.post("/schedules", weekly(app_id, key, **data))
    assert made.status == 201, made.body
    namespace = (await caller.get("/whoami")).json["namespace"]
    return Due(house, namespace, key)


async def jobs_of(house: House, app_id: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await house.admin.get(f"/apps/{app_id}/jobs?limit=100")).json
    return listed


async def outcomes_of(caller: Client, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await caller.get(f"/schedules/{key}")).json["outcomes"]
    return found


async def test_an_occurrence_that_waits_for_other_starts_is_not_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = await house.app_with_template()
    caller = await house.service(app_id)
    monkeypatch.setattr(start, "_AT_ONCE", 0)
    found = await due(house, caller, app_id, "weekly-busy")
    found.starts._seconds = 0.1
    first = (await found.occurrences())[0]
    await found.attempt(first)
    [again] = [each for each in await found.occurrences() if each.id == first.id]
    assert (again.attempts, again.token) == (0, "")
    assert await outcomes_of(caller, "weekly-busy") == []


async def test_an_occurrence_starts_one_job_however_often_it_is_attempted(house: House) -> None:
    app_id = await house.app_with_template()
    caller = await house.service(app_id)
    found = await due(house, caller, app_id, "weekly-once", expires_after_seconds=3_600)
    first = (await found.occurrences())[0]
    await found.attempt(first)
    [job] = await jobs_of(house, app_id)
    assert job["id"].replace("-", "") == first.message_id
    assert (job["filters"], job["createdBy"], job["schedule"]["key"]) == ({"locale": "en"}, "service", "weekly-once")
    assert job["expiresAt"] == house.clock.now_ns() + 3_600 * 10**9
    [outcome] = await outcomes_of(caller, "weekly-once")
    assert (outcome["result"], outcome["job_id"]) == ("fired", job["id"])
    # The worker died after it had stored the job: the occurrence is there still.
    await house.store.occurrences.add([first])
    await found.attempt(first)
    assert len(await jobs_of(house, app_id)) == 1
    assert len(await found.occurrences()) == 29


async def test_many_occurrences_at_once_start_one_job_where_overlap_is_skip(house: House) -> None:
    app_id = await house.app_with_template()
    caller = await house.service(app_id)
    found = await due(house, caller, app_id, "weekly-skip")
    await asyncio.gather(*map(found.attempt, await found.occurrences()))
    for _ in range(3):
        await asyncio.gather(*map(found.attempt, await found.occurrences()))
    [job] = await jobs_of(house, app_id)
    outcomes = await outcomes_of(caller, "weekly-skip")
    skipped = [each for each in outcomes if each["result"] == "skipped"]
    assert len(skipped) >= 19
    assert skipped[0]["error"] == f"job {job['id']} of another occurrence is still running, and overlap is skip"
    assert await found.occurrences() == []


async def test_a_queued_occurrence_starts_its_job_when_the_one_before_has_ended(house: House) -> None:
    app_id = await house.app_with_template()
    caller = await house.service(app_id)
    found = await due(house, caller, app_id, "weekly-queue", overlap="queue")
    first, second, third = (await found.occurrences())[:3]
    await found.attempt(first)
    await found.attempt(third)
    await found.attempt(second)
    [job] = await jobs_of(house, app_id)
    assert len(await found.occurrences()) == 29
    assert await outcomes_of(caller, "weekly-queue") != []
    stopped = await house.admin.put(f"/apps/{app_id}/jobs/{job['id']}/stop")
    assert stopped.status == 200
    await _close(house, job["id"])
    await found.attempt(third)  # the second one is ahead of it
    assert len(await jobs_of(house, app_id)) == 1
    await found.attempt(second)
    assert len(await jobs_of(house, app_id)) == 2


async def test_an_occurrence_that_is_fired_by_hand_waits_and_is_not_skipped(house: House) -> None:
    app_id = await house.app_with_template()
    caller = await house.service(app_id)
    found = await due(house, caller, app_id, "weekly-hand")
    await found.attempt((await found.occurrences())[0])
    assert (await caller.post("/schedules/weekly-hand/fire")).status == 202
    [asked] = [each for each in await found.occurrences() if each.kind == "asked"]
    await found.attempt(asked)
    assert asked.id in {each.id for each in await found.occurrences()}
    [job] = await jobs_of(house, app_id)
    await house.admin.put(f"/apps/{app_id}/jobs/{job['id']}/stop")
    await _close(house, job["id"])
    await found.attempt(asked)
    assert len(await jobs_of(house, app_id)) == 2


async def test_a_repeated_request_is_answered_though_its_template_is_gone(house: House) -> None:
    app_id = await house.app_with_template()
    body = weekly(app_id, "weekly-repeat")
    assert (await house.admin.post("/schedules", body)).status == 201
    [template] = (await house.admin.get(f"/apps/{app_id}/templates")).json
    await house.admin.delete(f"/apps/{app_id}/templates/{template['id']}")
    assert (await house.admin.post("/schedules", body)).status == 200
    assert (await house.admin.put("/schedules/weekly-repeat", body)).status == 200


async def test_a_key_twice_in_a_bulk_is_judged_twice(house: House) -> None:
    app_id = await house.app_with_template()
    bad, good = weekly(app_id, "weekly-twice", template="none"), weekly(app_id, "weekly-twice")
    answers = (await house.admin.post("/schedules/bulk", [bad, good])).json
    assert answers[0]["status"] == 422


async def test_the_queue_of_a_schedule_is_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "QUEUED", 5)
    app_id = await house.app_with_template()
    caller = await house.service(app_id)
    found = await due(house, caller, app_id, "weekly-bound", overlap="queue")
    await found.attempt((await found.occurrences())[-1])
    [outcome] = await outcomes_of(caller, "weekly-bound")
    assert (outcome["result"], outcome["error"]) == ("skipped", "5 earlier occurrences wait for an open job already")


async def test_jobs_overlap_where_that_is_allowed(house: House) -> None:
    app_id = await house.app_with_template()
    caller = await house.service(app_id)
    found = await due(house, caller, app_id, "weekly-allow", overlap="allow")
    for occurrence in await found.occurrences(3):
        await found.attempt(occurrence)
    assert len(await jobs_of(house, app_id)) == 3


async def test_a_maker_without_the_role_any_more_starts_nothing(house: House) -> None:
    app_id = await house.app_with_template()
    caller = await house.service(app_id)
    found = await due(house, caller, app_id, "weekly-role")
    token_id = (await caller.get("/whoami")).json["namespace"].removeprefix("token:")
    await house.store.tokens._tokens.update_one({"_id": token_id}, {"$set": {"allowed_apps": []}})
    await found.attempt((await found.occurrences())[0])
    assert await jobs_of(house, app_id) == []
    [letter] = (await caller.get("/dead-letters?key=weekly-role")).json
    assert letter["error"] == "service made the schedule, and no longer has the role operator over the app"


async def test_a_deleted_app_is_a_dead_letter(house: House) -> None:
    app_id = await house.app_with_template()
    caller = await house.service(app_id)
    found = await due(house, caller, app_id, "weekly-app")
    first = (await found.occurrences())[0]
    assert (await house.admin.delete(f"/apps/{app_id}")).status in {202, 204}
    await found.attempt(first)
    [letter] = (await caller.get("/dead-letters?key=weekly-app")).json
    assert letter["error"] == "the app of the job is deleted"


async def test_an_expired_token_starts_nothing(house: House) -> None:
    app_id = await house.app_with_template()
    caller = await house.service(app_id)
    found = await due(house, caller, app_id, "weekly-token")
    stored = await house.store.tokens.get((await caller.get("/whoami")).json["namespace"].removeprefix("token:"))
    assert stored is not None
    gone = replace(stored, expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    await house.store.tokens._tokens.update_one({"_id": stored.id}, {"$set": {"expires_at": gone.expires_at}})
    await found.attempt((await found.occurrences())[0])
    [letter] = (await house.admin.get(f"/dead-letters?key=weekly-token&namespace=token:{stored.id}")).json
    assert letter["error"].startswith("the token that made the schedule is revoked or expired")


async def test_a_template_that_is_gone_is_tried_again(house: House) -> None:
    app_id = await house.app_with_template()
    caller = await house.service(app_id)
    found = await due(house, caller, app_id, "weekly-template")
    [template] = (await house.admin.get(f"/apps/{app_id}/templates")).json
    assert (await house.admin.delete(f"/apps/{app_id}/templates/{template['id']}")).status == 204
    first = (await found.occurrences())[0]
    await found.attempt(first)
    [outcome] = await outcomes_of(caller, "weekly-template")
    assert (outcome["result"], outcome["error"]) == ("failed", "the app has no template named 'like'")
    again = {"name": "like", "locale": "en", "body": {"alert": "{{user}}"}, "defaults": {"user": "Ana"}}
    assert (await house.admin.post(f"/apps/{app_id}/templates", again)).status == 201
    await found.attempt(first)
    assert len(await jobs_of(house, app_id)) == 1


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"app_id": "x"}, "callback.data.app_id"),
        ({"app_id": "0190b5a2-0000-7000-8000-000000000000"}, "callback.data.app_id"),
        ({"template": "none"}, "callback.data.template"),
        ({"template": ""}, "callback.data.template"),
        ({"overlap": "replace"}, "callback.data.overlap"),
        ({"expires_after_seconds": 0}, "callback.data.expires_after_seconds"),
        ({"payload": {**PAYLOAD, "id": "0190b5a2-0000-7000-8000-000000000000"}}, "callback.data.payload.id"),
        ({"payload": {**PAYLOAD, "startsAt": "2030-01-01T00:00:00Z"}}, "callback.data.payload.startsAt"),
        ({"payload": {**PAYLOAD, "expiresAt": "2030-01-01T00:00:00Z"}}, "callback.data.payload.expiresAt"),
        ({"payload": {**PAYLOAD, "localized": True}}, "callback.data.payload.localized"),
        ({"payload": {**PAYLOAD, "filter": {}}}, "callback.data.payload.filter"),
        ({"payload": {**PAYLOAD, "service": "sms"}}, "callback.data.payload.service"),
        ({"payload": {**PAYLOAD, "filters": {"no_column": "x"}}}, "callback.data.payload.filters"),
        ({"payload": {**PAYLOAD, "controlGroup": 2}}, "callback.data.payload.controlGroup"),
        ({"payload": {"service": "apns", "csvPath": "b/none.csv"}}, "callback.data.payload.csvPath"),
        ({"payload": {"credential": "none"}}, "callback.data.payload.credential"),
        ({"payload": 1}, "callback.data.payload"),
        ({"jobs": 1}, "callback.data.jobs"),
    ],
)
async def test_a_bad_job_is_refused_when_its_schedule_is_made(house: House, data: dict[str, Any], field: str) -> None:
    app_id = await house.app_with_template()
    for reply in await _all_ways(house.admin, weekly(app_id, "weekly-bad", **data)):
        assert reply.status == 422, reply.body
        assert reply.json["field"].startswith(field), reply.body
    assert (await house.admin.get("/schedules/weekly-bad")).status == 404
    assert await jobs_of(house, app_id) == []


async def test_a_caller_without_the_role_makes_no_such_schedule(house: House) -> None:
    app_id = await house.app_with_template()
    caller = await house.service()
    for reply in await _all_ways(caller, weekly(app_id, "weekly-none")):
        assert (reply.status, reply.json["field"]) == (403, "callback.data.app_id")


async def _all_ways(caller: Client, body: dict[str, Any]) -> list[Reply]:
    key = body["key"]
    replies = [
        await caller.post("/schedules", body),
        await caller.put(f"/schedules/{key}", body),
        await caller.post("/schedules/preview", body),
    ]
    [item] = (await caller.post("/schedules/bulk", [body])).json
    assert item["status"] == replies[0].status
    assert item["error"]["field"] == replies[0].json["field"]
    return replies


async def _close(house: House, job_id: str) -> None:
    job = await house.store.jobs.get(job_id)
    assert job is not None
    await workers._finisher(Rooms(Servers(**vars(house.servers)))).run(FinishJob(job.key))
