"""Who is believed, and what each may do."""

import re

import pytest

from services.api.http.rights import protected_paths
from services.wiring.api import build_resources
from services.wiring.rooms import Rooms
from shared.accounts.rules.callers import secret_digest
from tests.services.api.client import ADMIN, Client, Reply
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


def refused(reply: Reply, status: int) -> bool:
    return reply.status == status and reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("peer", ["203.0.113.9", "10.0.0.1", "::2", "::ffff:203.0.113.9", "nonsense", "", None])
async def test_the_header_of_a_stranger_is_not_believed(house: House, peer: str | None) -> None:
    spoofer = Client(house.admin.app, {"x-forwarded-email": ADMIN, "x-forwarded-for": "127.0.0.1"}, peer)
    for path in ("/apps", "/users", "/tokens", "/apps/x/jobs"):
        assert refused(await spoofer.get(path), 401)


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
async def test_the_header_of_a_trusted_proxy_is_believed(house: House, peer: str) -> None:
    assert (await Client(house.admin.app, {"x-forwarded-email": ADMIN}, peer).get("/users")).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-forwarded-email": ""},
        {"x-forwarded-email": "nobody@example.com"},
        {"x-forwarded-email": f" {ADMIN}"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer nonsense", "x-forwarded-email": ADMIN},
        {"authorization": "bearer", "x-forwarded-email": ADMIN},
        {"authorization": "Basic YWRtaW46"},
    ],
)
async def test_whoever_is_not_known_learns_nothing(house: House, headers: dict[str, str]) -> None:
    stranger = Client(house.admin.app, headers)
    for method, path in [("GET", "/apps"), ("GET", "/apps/none/such/path"), ("BREW", "/apps"), ("POST", "/users")]:
        reply = await stranger.send(method, path)
        assert refused(reply, 401)
        assert reply.headers["www-authenticate"].startswith("Bearer")


async def test_two_names_are_none(house: House) -> None:
    twice = [(b"x-forwarded-email", b"mallory@example.com"), (b"x-forwarded-email", ADMIN.encode())]
    assert refused(await house.admin.exchange("GET", "/apps", b"", twice), 401)
    assert refused(await house.admin.exchange("GET", "/apps", b"", twice[::-1]), 401)


async def test_health_and_documentation_need_nobody(house: House) -> None:
    stranger = Client(house.admin.app, {}, "203.0.113.9")
    for path in ("/healthcheck", "/openapi.json", "/docs"):
        assert (await stranger.get(path)).status == 200


async def test_the_first_admin_is_there_from_the_start_and_once(house: House) -> None:
    await house.admin.get("/apps")
    users = (await house.admin.get("/users")).json
    assert [user["isAdmin"] for user in users if user["email"] == ADMIN] == [True]


async def test_a_token_works_from_anywhere_until_it_is_revoked_and_is_stored_as_a_digest(house: House) -> None:
    app_id, other = await house.app(), await house.app()
    made = await house.admin.post("/tokens", {"name": "billing", "allowedApps": [app_id.replace("-", "").upper()]})
    assert made.status == 201
    secret = made.json.pop("token")
    assert re.fullmatch(r"carillon_[\w-]{43}", secret)
    token_id = made.json["id"]
    stored = await house.store.tokens.get(token_id)
    assert stored is not None
    assert stored.digest == secret_digest(secret) != secret
    listed = next(token for token in (await house.admin.get("/tokens")).json if token["id"] == token_id)
    assert listed == {
        "id": token_id, "name": "billing", "isAdmin": False, "allowedApps": [app_id], "createdBy": ADMIN,
        "createdAt": house.clock.now_ns(), "roles": {}, "namespace": f"token:{token_id}", "expiresAt": None,
        "lastUsedAt": None, "previousUntil": None, "messagesPerSecond": 10.0, "scope": "",
    }  # fmt: skip

    service = house.admin.service(secret)
    assert (await service.get(f"/apps/{app_id}")).status == 200
    assert (await service.get("/apps")).status == 200
    assert refused(await service.get(f"/apps/{other}"), 403)
    for path in ("/users", "/tokens"):
        assert refused(await service.get(path), 403)
    assert (await house.admin.delete(f"/tokens/{token_id}")).status == 204
    assert refused(await service.get(f"/apps/{app_id}"), 401)


async def test_an_admins_token_may_do_everything(house: House) -> None:
    secret = (await house.admin.post("/tokens", {"name": "ops", "isAdmin": True})).json["token"]
    service = house.admin.service(secret)
    for path in ("/users", "/tokens", f"/apps/{await house.app()}"):
        assert (await service.get(path)).status == 200


async def test_only_admins_make_apps_users_and_tokens(house: House) -> None:
    app_id = await house.app()
    await house.admin.post("/users", {"email": "plain@example.com", "allowedApps": [app_id]})
    plain = house.admin.someone("plain@example.com")
    assert (await plain.get("/apps")).status == 200
    assert (await plain.get(f"/apps/{app_id}")).status == 200
    user = (await house.admin.get("/users")).json[0]["id"]
    calls = [
        ("POST", "/apps"), ("POST", "/users"), ("GET", "/users"), ("GET", f"/users/{user}"), ("PUT", f"/users/{user}"),
        ("DELETE", f"/users/{user}"), ("POST", "/tokens"), ("GET", "/tokens"), ("DELETE", f"/tokens/{user}"),
    ]  # fmt: skip
    for method, path in calls:
        assert refused(await plain.send(method, path, b"{"), 403), (method, path)


async def test_rights_end_with_the_change(house: House) -> None:
    app_id = await house.app()
    made = (await house.admin.post("/users", {"email": "was@example.com", "allowedApps": [app_id]})).json
    was = house.admin.someone("was@example.com")
    assert (await was.get(f"/apps/{app_id}")).status == 200
    changed = await house.admin.put(f"/users/{made['id']}", {"email": "other@example.com", "allowedApps": None})
    assert changed.json | {"email": "was@example.com", "allowedApps": None, "isAdmin": False} == changed.json
    assert refused(await was.get(f"/apps/{app_id}"), 403)
    assert (await house.admin.delete(f"/users/{made['id']}")).status == 204
    assert refused(await was.get(f"/apps/{app_id}"), 401)


async def test_what_asks_for_an_identity_is_known(house: House) -> None:
    handlers = [handler for each in build_resources(Rooms(house.servers)) for handler in each.handlers()]
    assert protected_paths(handlers) == {
        "apps", "calendars", "users", "tokens", "uploadurl", "schedules", "dead-letters", "signing-secrets", "whoami",
        "audit",
        "bulk-actions", "jobs", "minutes", "overview", "namespaces", "processes", "queues", "sessions",
        "settings", "credentials", "bus",
    }  # fmt: skip
