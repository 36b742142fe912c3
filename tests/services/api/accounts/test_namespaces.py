"""Namespaces: a caller has one, and an admin sees and moves all of them. A revoked caller's schedules are paused."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from shared.accounts.rules.apps import fold_email
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import schedule_id
from shared.runtime.settings import ApiSettings
from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SCHEDULE: dict[str, Any] = {
    "every": 3600,
    "callback": {"type": "rabbitmq", "data": {"queue": "orders", "payload": {"id": 1}}},
}


async def issued(house: House) -> tuple[Client, str, str]:
    """A service, the id of its token, and its namespace as it stands in a query."""
    made = (await house.admin.post("/tokens", {"name": "evil"})).json
    return house.admin.service(made["token"]), made["id"], f"token%3A{made['id']}"


async def dead_letter(house: House, namespace: str, key: str) -> str:
    at = datetime.now(UTC).replace(microsecond=0)
    letter = DeadLetter(
        id=f"{key}-{namespace[-12:]}", death=f"{key}-{namespace[-12:]}",
        namespace=namespace, key=key, schedule_id=schedule_id(namespace, key),
        generation="g", due=at, died_at=at + timedelta(hours=1), attempts=10, error="404 Not Found",
    )  # fmt: skip
    await house.store.dead_letters.add([letter])
    return letter.id


async def test_a_revoked_tokens_schedules_are_paused_and_an_admin_sees_and_removes_them(house: House) -> None:
    evil, token_id, namespace = await issued(house)
    assert (await evil.post("/schedules", SCHEDULE | {"key": "evil"})).status == 201
    assert (await house.admin.get("/schedules/evil")).status == 404
    assert (await house.admin.delete(f"/tokens/{token_id}")).status == 204
    listed = (await house.admin.get(f"/schedules?namespace={namespace}")).json
    assert [(each["key"], each["state"]) for each in listed] == [("evil", "paused")]
    assert (await house.admin.delete(f"/schedules/evil?namespace={namespace}")).status == 204
    assert (await house.admin.get(f"/schedules?namespace={namespace}")).json == []


async def test_a_deleted_users_schedules_are_paused(house: House) -> None:
    made = (await house.admin.post("/users", {"email": "left@example.com"})).json
    left = house.admin.someone("left@example.com")
    assert (await left.post("/schedules", SCHEDULE | {"key": "left"})).status == 201
    assert (await house.admin.delete(f"/users/{made['id']}")).status == 204
    shown = await house.admin.get("/schedules/left?namespace=user:left@example.com")
    assert shown.json["state"] == "paused"


async def test_an_admin_moves_any_schedule(house: House) -> None:
    service, _, namespace = await issued(house)
    at = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert (await service.post("/schedules", SCHEDULE | {"key": "a"})).status == 201
    listed = {"key": "b", "schedules": [at], "callback": SCHEDULE["callback"]}
    assert (await service.post("/schedules", listed)).status == 201
    query = f"?namespace={namespace}"
    for move, state in (("pause", "paused"), ("resume", "active")):
        assert (await house.admin.post(f"/schedules/a/{move}{query}")).json["state"] == state
        assert (await service.get("/schedules/a")).json["state"] == state
    fired = await house.admin.post(f"/schedules/a/fire{query}", idempotency_key="once")
    again = await house.admin.post(f"/schedules/a/fire{query}", idempotency_key="once")
    assert (fired.status, again.json) == (202, fired.json)
    other = await house.admin.post("/schedules/a/fire", idempotency_key="once")
    assert other.status == 404
    assert (await house.admin.delete(f"/schedules/b/occurrences/{at.replace('+00:00', 'Z')}{query}")).status == 204
    pages = await house.admin.get(f"/schedules{query}&limit=1")
    following = pages.headers["link"].partition("<")[2].partition(">")[0]
    assert [each["key"] for each in (await house.admin.get(following)).json] == ["b"]


async def test_what_an_admin_has_resumed_is_not_paused_again(house: House) -> None:
    service, token_id, namespace = await issued(house)
    await service.post("/schedules", SCHEDULE | {"key": "kept"})
    await house.admin.delete(f"/tokens/{token_id}")
    assert (await house.admin.post(f"/schedules/kept/resume?namespace={namespace}")).json["state"] == "active"
    kept = await house.store.revocations.get(f"token:{token_id}")
    assert kept is not None
    assert kept.spared == (schedule_id(f"token:{token_id}", "kept"),)


async def test_an_admin_sees_retries_and_discards_any_dead_letter(house: House) -> None:
    service, token_id, namespace = await issued(house)
    await service.post("/schedules", SCHEDULE | {"key": "dead"})
    first, second, third = [await dead_letter(house, f"token:{token_id}", key) for key in ("dead", "x", "dead2")]
    query = f"?namespace={namespace}"
    assert {each["id"] for each in (await house.admin.get(f"/dead-letters{query}")).json} == {first, second, third}
    assert (await house.admin.post(f"/dead-letters/{second}/discard")).status == 404
    assert (await house.admin.post(f"/dead-letters/{second}/discard{query}")).status == 204
    assert (await house.admin.post(f"/dead-letters/{third}/retry{query}")).status == 409
    assert (await house.admin.post(f"/dead-letters/retry{query}")).json == {"retried": 1}
    assert [each["id"] for each in (await house.admin.get(f"/dead-letters{query}")).json] == [third]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/schedules"), ("GET", "/schedules/a"), ("DELETE", "/schedules/a"), ("POST", "/schedules/a/pause"),
        ("POST", "/schedules/a/resume"), ("POST", "/schedules/a/fire"), ("POST", "/schedules"),
        ("PUT", "/schedules/a"), ("POST", "/schedules/bulk"),
        ("DELETE", "/schedules/a/occurrences/2030-01-01T00:00:00Z"), ("GET", "/dead-letters"),
        ("POST", "/dead-letters/retry"), ("POST", "/dead-letters/x/retry"), ("POST", "/dead-letters/x/discard"),
    ],
)  # fmt: skip
async def test_nobody_else_names_another_namespace(house: House, method: str, path: str) -> None:
    service, _, own = await issued(house)
    _, _, others = await issued(house)
    reply = await service.send(method, f"{path}?namespace={others}", SCHEDULE)
    assert (reply.status, reply.json["field"]) == (403, "namespace")
    assert (await service.send(method, f"{path}?namespace={own}", SCHEDULE)).status != 403


@pytest.mark.parametrize("path", ["/schedules", "/schedules/bulk"])
async def test_not_even_an_admin_adds_to_another_namespace(house: House, path: str) -> None:
    _, _, others = await issued(house)
    reply = await house.admin.post(f"{path}?namespace={others}", SCHEDULE | {"key": "x"})
    assert (reply.status, reply.json["field"]) == (403, "namespace")


async def test_a_namespace_that_can_be_nobodys_is_named(house: House) -> None:
    for namespace in ("billing", "token:", "group:a"):
        reply = await house.admin.get(f"/schedules?namespace={namespace}")
        assert (reply.status, reply.json["field"]) == (422, "namespace")


async def test_the_first_admin_of_the_settings_is_not_deleted_in_vain(house: House) -> None:
    await house.admin.get("/apps")
    [first] = [user for user in (await house.admin.get("/users")).json if user["email"] == ADMIN]
    reply = await house.admin.delete(f"/users/{first['id']}")
    assert (reply.status, reply.json["field"]) == (409, "userId")
    assert "api.first_admin" in reply.json["reason"]
    assert (await house.admin.get(f"/users/{first['id']}")).status == 200
    other = house.build(ApiSettings(first_admin="other@example.com"))
    someone = Client(other, {"x-forwarded-email": "other@example.com"})
    made = (await someone.post("/users", {"email": "gone@example.com"})).json
    assert (await someone.delete(f"/users/{made['id']}")).status == 204


@pytest.mark.parametrize(
    ("entered", "sent"),
    [
        ("Ana.Lee@Example.com", "ana.lee@example.com"),
        ("bo.lee@example.com", "BO.Lee@EXAMPLE.com"),
        ("jürg@a.ch", "JÜRG@A.ch"),
    ],
)
async def test_a_person_is_one_whatever_the_case_of_their_address(house: House, entered: str, sent: str) -> None:
    made = await house.admin.post("/users", {"email": entered})
    assert (made.status, made.json["email"]) == (201, entered)
    again = await house.admin.post("/users", {"email": sent})
    assert (again.status, entered in again.json["reason"], again.json["field"]) == (409, True, "email")
    people = [house.admin.someone(each.encode().decode("latin-1")) for each in (entered, sent)]
    for key, person in zip("ab", people, strict=True):
        who = (await person.get("/whoami")).json
        assert (who["name"], who["namespace"]) == (entered, f"user:{entered.lower()}")
        assert (await person.post("/schedules", {"key": key} | SCHEDULE)).status == 201
    for spelled in (f"user:{sent}", f"user:{entered}"):
        listed = await house.admin.get(f"/schedules?namespace={quote(spelled)}")
        assert [each["key"] for each in listed.json] == ["a", "b"]
        assert (await house.admin.get(f"/audit?by={quote(spelled)}")).status == 200
        viewer = await house.admin.post("/tokens", {"name": spelled, "roles": {f"namespace/{spelled}": "viewer"}})
        seen = await house.admin.service(viewer.json["token"]).get(f"/schedules?namespace={quote(f'user:{sent}')}")
        assert seen.status == 200
    assert (await house.admin.delete(f"/users/{made.json['id']}")).status == 204
    assert [(await person.get("/whoami")).status for person in people] == [401, 401]


async def test_the_first_admin_is_known_in_any_case_and_is_one_user(house: House) -> None:
    app = Client(house.build(ApiSettings(first_admin="Root.One@example.com", trusted_proxies=("127.0.0.0/8",))))
    for sent in ("root.one@example.com", "ROOT.ONE@example.com"):
        assert (await app.someone(sent).get("/whoami")).json["name"] == "Root.One@example.com"
    users = [each for each in (await house.admin.get("/users")).json if "root" in each["email"].lower()]
    assert [each["email"] for each in users] == ["Root.One@example.com"]
    assert (await app.someone("root.one@example.com").delete(f"/users/{users[0]['id']}")).status == 409


async def test_no_letter_beyond_ascii_is_taken_for_one_of_ascii() -> None:
    assert fold_email("Mi\u212ae@Example.com") == "mi\u212ae@example.com"
