"""What fires next, over HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.api.clock import schedules
from tests.services.api.client import Client
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

QUEUE = {"type": "rabbitmq", "data": {"queue": "orders", "payload": {"id": 1}}}


async def service(house: House) -> tuple[Client, str]:
    made = (await house.admin.post("/tokens", {"name": "service"})).json
    return house.admin.service(made["token"]), f"token:{made['id']}"


def ahead(**offset: float) -> str:
    return (datetime.now(UTC) + timedelta(**offset)).isoformat()


async def scheduled(client: Client, key: str, **offset: float) -> None:
    schedule: dict[str, Any] = {"key": key, "schedules": [ahead(**offset)], "callback": QUEUE}
    assert (await client.post("/schedules", schedule)).status == 201


async def test_what_fires_next_comes_first_and_what_is_paused_or_others_is_left_out(house: House) -> None:
    client, namespace = await service(house)
    stranger, _ = await service(house)
    await scheduled(client, "third", hours=9)
    await scheduled(client, "first", seconds=40)
    await scheduled(client, "second", minutes=20)
    await scheduled(client, "paused", minutes=10)
    await scheduled(client, "far", hours=30)
    await scheduled(stranger, "theirs", minutes=15)
    assert (await client.post("/schedules/paused/pause")).status == 200
    told = (await client.get("/schedules/due")).json
    assert [each["key"] for each in told["instants"]] == ["first", "second", "third"]
    assert {each["namespace"] for each in told["instants"]} == {namespace}
    assert all(told["as_of"] < each["at"] == each["due"] < told["until"] for each in told["instants"])
    soon = (await client.get("/schedules/due?within=60")).json
    assert [each["key"] for each in soon["instants"]] == ["first"]


async def test_a_role_over_a_namespace_shows_what_is_due_there(house: House) -> None:
    client, namespace = await service(house)
    await scheduled(client, "mine", minutes=5)
    named = namespace.replace(":", "%3A")
    shown = (await house.admin.get(f"/schedules/due?namespace={named}")).json["instants"]
    assert [(each["namespace"], each["key"]) for each in shown] == [(namespace, "mine")]
    everywhere = (await house.admin.get("/schedules/due?namespace=*")).json["instants"]
    assert namespace in {each["namespace"] for each in everywhere}
    stranger, _ = await service(house)
    assert (await stranger.get(f"/schedules/due?namespace={named}")).status == 403
    assert (await stranger.get("/schedules/due?namespace=*")).status == 403


async def test_the_look_ends_where_others_have_much_and_says_how_far_it_came(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd, _ = await service(house)
    client, _ = await service(house)
    for minute in range(1, 5):
        await scheduled(crowd, f"k{minute}", minutes=minute)
    await scheduled(client, "mine", hours=20)
    monkeypatch.setattr(schedules, "LOOKED_AT", 3)
    told = (await client.get("/schedules/due")).json
    assert told["instants"] == []
    assert told["until"] < ahead(minutes=5)


@pytest.mark.parametrize("within", ["0", "-1", "1.5", "86401", "x"])
async def test_a_window_that_cannot_be_is_refused(house: House, within: str) -> None:
    reply = await house.admin.get(f"/schedules/due?within={within}")
    assert (reply.status, reply.json["field"]) == (422, "within")


async def test_no_new_key_hides_behind_the_route(house: House) -> None:
    reply = await house.admin.post("/schedules", {"key": "due", "schedules": [ahead(days=1)], "callback": QUEUE})
    assert (reply.status, reply.json["field"]) == (422, "key")
