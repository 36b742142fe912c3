"""Who did what, as the API writes it down and shows it."""

from typing import Any

import pytest

from services.api.http.acts import REASON_HEADER
from shared.console.rules.audit import AuditRecord
from shared.core.errors import Unavailable
from shared.jobs.rules.batches import Receipt, Totals
from shared.jobs.rules.events import COMPLETE, Milestone
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIKE = {"name": "like", "locale": "en", "body": {"alert": "{{user}} likes it"}, "defaults": {"user": "Ana"}}


async def acts_on(house: House, id: str) -> list[dict[str, Any]]:
    """What was done to the thing with this id, the newest first."""
    answer = await house.admin.get(f"/audit?on={id}")
    assert answer.status == 200, answer.body
    return list(answer.json)


async def test_what_was_done_to_an_app_is_told_with_who_and_how_it_ended(house: House) -> None:
    wanted = {"name": "audited", "bundleId": "com.example.audited"}
    app_id = (await house.admin.post("/apps", wanted)).json["id"]
    await house.admin.put(f"/apps/{app_id}", wanted | {"bundleId": ""})
    service = await house.service(app_id)
    await service.delete(f"/apps/{app_id}")
    deleted, updated, created = await acts_on(house, app_id)
    assert [(each["act"], each["outcome"], each["status"]) for each in (created, updated, deleted)] == [
        ("app.create", "done", 201), ("app.update", "refused", 422), ("app.delete", "done", 204),
    ]  # fmt: skip
    assert created["on"] == deleted["on"]
    assert created["who"]["namespace"] == f"user:{ADMIN}"
    assert (created["who"]["name"], created["who"]["way"]) == (ADMIN, "proxy")
    assert (created["who"]["kind"], deleted["who"]["kind"]) == ("user", "token")
    assert (deleted["who"]["way"], deleted["on"]) == (
        "token",
        {"kind": "app", "id": app_id, "name": "audited", "appId": app_id, "namespace": ""},
    )
    assert created["at"] <= updated["at"] <= deleted["at"]


async def test_what_was_made_is_named_by_its_id_and_belongs_to_its_app(house: House) -> None:
    app_id = await house.app()
    template = await house.admin.post(f"/apps/{app_id}/templates", LIKE)
    token = (await house.admin.post("/tokens", {"name": "service"})).json
    [made] = await acts_on(house, template.json["id"])
    assert (made["act"], made["on"]["appId"]) == ("template.create", app_id)
    [issued] = await acts_on(house, token["id"])
    assert (issued["act"], issued["on"]["appId"], issued["on"]["namespace"]) == ("token.create", "", "")
    assert token["token"] not in str(issued)
    assert made in (await house.admin.get(f"/apps/{app_id}/audit")).json


async def test_things_are_told_by_their_names_too(house: House) -> None:
    app_id = await house.app_with_template()
    [template] = (await house.admin.get(f"/apps/{app_id}/templates")).json
    user = (await house.admin.post("/users", {"email": f"{app_id}@example.com"})).json
    token = (await house.admin.post("/tokens", {"name": "billing"})).json
    job = (await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})).json
    await house.admin.put(f"/apps/{app_id}/jobs/{job['id']}/stop")
    await house.admin.post(f"/tokens/{token['id']}/rotate")
    for path in (f"/apps/{app_id}/templates/{template['id']}", f"/users/{user['id']}", f"/tokens/{token['id']}"):
        assert (await house.admin.delete(path)).status == 204
    names = {
        template["id"]: {"like"}, user["id"]: {user["email"]}, token["id"]: {"billing"}, job["id"]: {"like"},
    }  # fmt: skip
    for id, expected in names.items():
        acts = await acts_on(house, id)
        assert len(acts) > 1
        assert {each["on"]["name"] for each in acts} == expected
    await house.admin.put(f"/apps/{app_id}/jobs/{app_id}/stop")
    [missing] = await acts_on(house, app_id)
    assert (missing["outcome"], missing["on"]["name"]) == ("refused", "")


async def test_what_the_jobs_of_a_deleted_app_came_to_stays_in_the_audit(house: House) -> None:
    app_id = await house.app_with_template()
    job = (await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})).json
    completed = Milestone(COMPLETE, await house.store.now(), "worker")
    closed = await house.store.jobs.close(
        job["id"], totals=Totals(), summed=Receipt(), completed_at=1, milestone=completed
    )
    assert closed is not None
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 204
    told, made = await acts_on(house, job["id"])
    assert (told["act"], made["act"]) == ("job.complete", "job.create")
    assert told["who"] == {"kind": "system", "namespace": "system", "name": "worker", "way": "", "address": ""}
    assert told["on"] == {"kind": "job", "id": job["id"], "name": "like", "appId": app_id, "namespace": ""}
    assert told in (await house.admin.get("/audit?by=system")).json


async def test_what_was_changed_is_told_as_it_was_and_as_it_is(house: House) -> None:
    app_id = await house.app()
    template = (await house.admin.post(f"/apps/{app_id}/templates", LIKE)).json
    user = (await house.admin.post("/users", {"email": "ana@example.com", "isAdmin": True})).json
    token = (await house.admin.post("/tokens", {"name": "service", "roles": {"*": "viewer"}})).json
    await house.admin.put(f"/apps/{app_id}/templates/{template['id']}", LIKE | {"body": {"alert": "no"}})
    await house.admin.put(f"/users/{user['id']}", {"email": "ana@example.com", "allowedApps": [app_id]})
    await house.admin.delete(f"/tokens/{token['id']}")
    await house.admin.delete(f"/users/{user['id']}")
    [updated, _] = await acts_on(house, template["id"])
    assert (updated["before"], updated["after"]) == ({"body": LIKE["body"]}, {"body": {"alert": "no"}})
    [deleted, changed, made] = await acts_on(house, user["id"])
    assert (made["before"], made["after"]["isAdmin"]) == ({}, True)
    assert changed["before"] == {"isAdmin": True, "allowedApps": None}
    assert changed["after"] == {"isAdmin": False, "allowedApps": [app_id]}
    assert (deleted["before"]["allowedApps"], deleted["after"]) == ([app_id], {})
    [revoked, issued] = await acts_on(house, token["id"])
    assert revoked["before"]["roles"] == issued["after"]["roles"] == {"*": "viewer"}
    assert token["token"] not in str([revoked, issued])


async def test_a_reason_is_kept_and_one_that_is_too_long_is_refused(house: House) -> None:
    app_id = await house.app()
    headers = {REASON_HEADER: "Störung".encode().decode("latin-1")}
    assert (await house.admin.send("DELETE", f"/apps/{app_id}", headers={REASON_HEADER: "x" * 1_001})).status == 422
    assert (await house.admin.get(f"/apps/{app_id}")).status == 200
    assert (await house.admin.send("DELETE", f"/apps/{app_id}", headers=headers)).status == 204
    [deleted] = [each for each in await acts_on(house, app_id) if each["act"] == "app.delete"]
    assert deleted["reason"] == "Störung"


async def test_schedules_of_people_are_written_down_and_those_of_services_are_not(house: House) -> None:
    service = await house.service()
    body = {
        "schedules": ["2160-01-01T00:00:00Z"],
        "callback": {"type": "rabbitmq", "data": {"queue": "q", "payload": 1}},
    }
    for caller, expected in ((house.admin, ["schedule.delete", "schedule.create"]), (service, [])):
        key = f"audited-{len(expected)}"
        assert (await caller.post("/schedules", body | {"key": key})).status == 201
        assert (await caller.delete(f"/schedules/{key}")).status == 204
        namespace = (await caller.get("/whoami")).json["namespace"]
        found = (await house.admin.get(f"/audit?by={namespace}")).json
        acts = [each for each in found if each["on"]["kind"] == "schedule"]
        assert [each["act"] for each in acts] == expected
        assert all(each["on"]["id"] == key and each["on"]["namespace"] == namespace for each in acts)


async def test_only_who_owns_an_app_sees_what_was_done_with_it(house: House) -> None:
    app_id = await house.app()
    operator = (await house.admin.post("/tokens", {"name": "v", "roles": {"*": "operator"}})).json["token"]
    owner = (await house.admin.post("/tokens", {"name": "o", "roles": {f"app/{app_id}": "admin"}})).json["token"]
    assert (await house.admin.service(operator).get(f"/apps/{app_id}/audit")).status == 403
    assert (await house.admin.service(owner).get(f"/apps/{app_id}/audit")).status == 200
    for secret in (operator, owner):
        assert (await house.admin.service(secret).get("/audit")).status == 403


async def test_records_come_in_pages_the_newest_first(house: House) -> None:
    app_id = await house.app()
    for n in range(5):
        await house.admin.post(f"/apps/{app_id}/templates", LIKE | {"name": f"t{n}"})
    whole = (await house.admin.get(f"/apps/{app_id}/audit")).json
    assert [each["id"] for each in whole] == sorted((each["id"] for each in whole), reverse=True)
    paged, path = [], f"/apps/{app_id}/audit?limit=2&act=template.create"
    while path:
        answer = await house.admin.get(path)
        assert len(answer.json) <= 2
        paged += answer.json
        path = answer.headers.get("link", "<>").partition("<")[2].partition(">")[0]
    assert paged == [each for each in whole if each["act"] == "template.create"]
    assert len(paged) == 5


async def test_what_cannot_be_written_down_is_not_done(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    app_id = await house.app()

    async def refuse(record: AuditRecord) -> None:
        raise Unavailable("MongoDB is away")

    monkeypatch.setattr(house.store.audit, "begin", refuse)
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 503
    assert (await house.admin.get(f"/apps/{app_id}")).status == 200


async def test_an_end_that_cannot_be_written_down_does_not_undo_what_was_done(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = await house.app()

    async def refuse(record: AuditRecord, **ended: object) -> None:
        raise Unavailable("MongoDB is away")

    monkeypatch.setattr(house.store.audit, "end", refuse)
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 204
    deleted = (await acts_on(house, app_id))[0]
    assert (deleted["act"], deleted["outcome"], deleted["status"]) == ("app.delete", "begun", 0)


async def test_an_id_is_written_down_in_one_spelling_whichever_was_asked_by(house: House) -> None:
    app_id = await house.app()
    for spelled in (app_id, app_id.upper(), app_id.replace("-", ""), f"urn:uuid:{app_id}"):
        assert (await house.admin.put(f"/apps/{spelled}", {"name": "x", "bundleId": ""})).status == 422
    records = (await house.admin.get(f"/apps/{app_id}/audit?act=app.update&on={app_id}")).json
    assert len(records) == 4


async def test_what_a_service_does_to_anothers_schedules_is_written_down(house: House) -> None:
    victim, key = await house.service(), "not-its-own"
    callback = {"type": "rabbitmq", "data": {"queue": "q", "payload": 1}}
    body = {"key": key, "schedules": ["2160-01-01T00:00:00Z"], "callback": callback}
    assert (await victim.post("/schedules", body)).status == 201
    namespace = (await victim.get("/whoami")).json["namespace"]
    made = await house.admin.post("/tokens", {"name": "operator", "roles": {f"namespace/{namespace}": "operator"}})
    operator = house.admin.service(made.json["token"])
    assert (await operator.delete(f"/schedules/{key}?namespace={namespace}")).status == 204
    [deleted] = [each for each in await acts_on(house, key) if each["on"]["namespace"] == namespace]
    assert (deleted["act"], deleted["who"]["namespace"]) == ("schedule.delete", f"token:{made.json['id']}")
