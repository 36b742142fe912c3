"""Tokens over HTTP: namespaces that they share, expiry, another secret, and when they were used last."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from services.api.accounts.tokens import MOST_OVERLAP_SECONDS
from shared.core.instants import format_instant, read_instant
from tests.services.api.client import Client, Reply
from tests.services.api.conftest import House
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SCHEDULE: dict[str, Any] = {"every": 3600, "callback": {"type": "rabbitmq", "data": {"queue": "orders", "payload": 1}}}


async def issued(house: House, **fields: Any) -> tuple[Client, dict[str, Any]]:
    made = await house.admin.post("/tokens", {"name": "service", **fields})
    assert made.status == 201, made.body
    return house.admin.service(made.json["token"]), dict(made.json)


async def rotated(house: House, token: dict[str, Any], **fields: Any) -> Reply:
    return await house.admin.post(f"/tokens/{token['id']}/rotate", fields)


async def shown(house: House, id: str) -> dict[str, Any]:
    [found] = [each for each in (await house.admin.get("/tokens")).json if each["id"] == id]
    return dict(found)


async def test_a_tokens_namespace_is_its_own_unless_an_admin_gives_another(house: House) -> None:
    one, own = await issued(house)
    assert own["namespace"] == f"token:{own['id']}" == (await one.get("/whoami")).json["namespace"]
    first, told = await issued(house, namespace="token:billing")
    second, _ = await issued(house, namespace="token:billing")
    assert told["namespace"] == (await second.get("/whoami")).json["namespace"] == "token:billing"
    assert (await first.post("/schedules", SCHEDULE | {"key": "shared"})).status == 201
    assert (await second.get("/schedules/shared")).status == 200
    assert (await one.get("/schedules/shared")).status == 404
    for namespace in ("billing", "user:a@example.com", "token:", "token:a/b", "*"):
        refused = await house.admin.post("/tokens", {"name": "service", "namespace": namespace})
        assert (refused.status, refused.json["field"]) == (422, "namespace")


async def test_a_revoked_token_takes_what_it_made_out_of_a_shared_namespace(house: House) -> None:
    leaked, token = await issued(house, namespace="token:orders")
    other, _ = await issued(house, namespace="token:orders")
    assert (await leaked.post("/schedules", SCHEDULE | {"key": "theirs"})).status == 201
    assert (await leaked.post("/schedules/bulk", [SCHEDULE | {"key": "in-bulk"}])).status == 200
    assert (await other.post("/schedules", SCHEDULE | {"key": "ours"})).status == 201
    assert (await house.admin.delete(f"/tokens/{token['id']}")).status == 204
    states = {each["key"]: each["state"] for each in (await other.get("/schedules")).json}
    assert states == {"theirs": "paused", "in-bulk": "paused", "ours": "active"}


async def test_a_token_ends_when_it_was_told_to(house: House) -> None:
    expires_at = format_instant(house.clock.now() + timedelta(hours=1))
    service, token = await issued(house, expiresAt=expires_at)
    assert read_instant(token["expiresAt"], field="") == read_instant(expires_at, field="")
    assert (await service.get("/whoami")).status == 200
    house.clock.advance(3_600)
    refused = await service.get("/whoami")
    assert (refused.status, refused.json["reason"]) == (401, f"this token expired at {token['expiresAt']}")
    past = await house.admin.post("/tokens", {"name": "service", "expiresAt": expires_at})
    assert (past.status, past.json["field"]) == (422, "expiresAt")
    assert (await rotated(house, token)).status == 409
    later = format_instant(house.clock.now() + timedelta(hours=1))
    again = await rotated(house, token, expiresAt=later)
    assert (await house.admin.service(again.json["token"]).get("/whoami")).status == 200


async def test_a_misspelt_field_makes_no_token_that_never_ends(house: House) -> None:
    later = format_instant(house.clock.now() + timedelta(hours=1))
    refused = await house.admin.post("/tokens", {"name": "service", "expires_at": later})
    assert (refused.status, refused.json["field"]) == (422, "expires_at")
    assert "expiresAt" in refused.json["reason"]
    _, token = await issued(house)
    again = await rotated(house, token, expireAt=later)
    assert (again.status, again.json["field"]) == (422, "expireAt")


async def test_a_rotated_secret_overlaps_with_the_one_before_and_all_else_stays(house: House) -> None:
    before, token = await issued(house, roles={"*": "viewer"})
    assert (await before.post("/schedules", SCHEDULE | {"key": "stays"})).status == 201
    reply = await rotated(house, token, overlapSeconds=60)
    assert reply.status == 200, reply.body
    after = house.admin.service(reply.json["token"])
    same = ("id", "name", "namespace", "roles", "createdAt", "isAdmin", "allowedApps", "expiresAt")
    assert {name: reply.json[name] for name in same} == {name: token[name] for name in same}
    for client in (before, after):
        assert (await client.get("/schedules/stays")).status == 200
    house.clock.advance(60)
    refused = await before.get("/schedules/stays")
    assert (refused.status, "was replaced" in refused.json["reason"]) == (401, True)
    assert (await after.get("/schedules/stays")).json["state"] == "active"


async def test_a_leaked_secret_ends_at_once_and_its_schedules_stay(house: House) -> None:
    leaked, token = await issued(house)
    assert (await leaked.post("/schedules", SCHEDULE | {"key": "stays"})).status == 201
    after = house.admin.service((await house.admin.post(f"/tokens/{token['id']}/rotate")).json["token"])
    assert (await leaked.get("/whoami")).status == 401
    assert (await after.get("/schedules/stays")).json["state"] == "active"


async def test_of_two_who_rotate_at_once_one_is_told(house: House) -> None:
    _, token = await issued(house)
    replies = await asyncio.gather(*(rotated(house, token, overlapSeconds=9) for _ in range(4)))
    good = [reply for reply in replies if reply.status == 200]
    assert {reply.status for reply in replies} <= {200, 409} and good
    secrets = [reply.json["token"] for reply in good]
    alive = [secret for secret in secrets if (await house.admin.service(secret).get("/whoami")).status == 200]
    assert 1 <= len(alive) <= 2


@pytest.mark.parametrize("seconds", [-1, MOST_OVERLAP_SECONDS + 1])
async def test_an_overlap_has_bounds(house: House, seconds: int) -> None:
    _, token = await issued(house)
    refused = await rotated(house, token, overlapSeconds=seconds)
    assert (refused.status, refused.json["field"]) == (422, "overlapSeconds")


async def test_rotation_is_for_admins_and_is_written_down(house: House) -> None:
    service, token = await issued(house)
    assert (await service.post(f"/tokens/{token['id']}/rotate")).status == 403
    assert (await rotated(house, token)).status == 200
    acts = (await house.admin.get(f"/audit?on={token['id']}&act=token.rotate")).json
    assert [each["outcome"] for each in acts] == ["done"]


async def test_when_a_token_was_used_last_is_known_to_the_minute(house: House) -> None:
    service, token = await issued(house)
    assert (await shown(house, token["id"]))["lastUsedAt"] is None

    async def last_used() -> Any:
        return (await shown(house, token["id"]))["lastUsedAt"]

    assert (await service.get("/whoami")).status == 200
    used_at = format_instant(house.clock.now())
    await until(lambda: _is(last_used, used_at))
    for _ in range(3):
        house.clock.advance(19)
        assert (await service.get("/whoami")).status == 200
    assert await last_used() == used_at
    house.clock.advance(5)
    assert (await service.get("/whoami")).status == 200
    await until(lambda: _is(last_used, format_instant(house.clock.now())))


async def _is(value: Any, expected: str) -> bool:
    return bool(await value() == expected)
