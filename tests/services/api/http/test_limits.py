"""What one namespace may ask and store."""

from typing import Any

import pytest

from services.api.clock import limits
from services.api.http.guards import Limited
from shared.runtime.settings import ApiSettings
from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import House
from tests.services.api.http.test_service import rebuilt

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOW = 2  # requests a second, and twice as many at once


@pytest.fixture(autouse=True)
def _stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody earns another request while a slow machine asks, and the number of schedules is waited for."""
    monkeypatch.setattr(Limited.__init__, "__kwdefaults__", {"monotonic": lambda: 0.0})
    monkeypatch.setattr(limits, "_WAIT_SECONDS", 30.0)


async def limited(house: House, **settings: Any) -> Client:
    """An API with these settings, asked with a token of its own."""
    app = rebuilt(house, ApiSettings(first_admin=ADMIN, **settings))
    made = await house.admin.post("/tokens", {"name": "limited"})
    return Client(app).service(made.json["token"])


async def use_up(client: Client) -> None:
    for _ in range(2 * SLOW):
        await client.get("/schedules")


def schedule(key: str, **fields: Any) -> dict[str, Any]:
    callback = {"type": "http", "data": {"url": "https://example.com/hook", "payload": {}}}
    return {"key": key, "callback": callback} | (fields or {"schedules": ["2100-01-01T00:00:00Z"]})


async def test_who_asks_too_often_is_told_when_to_come_back(house: House) -> None:
    client = await limited(house, requests_per_second=SLOW)
    *replies, refused = [await client.get("/schedules") for _ in range(2 * SLOW + 1)]
    assert [reply.status for reply in replies] == [200] * (2 * SLOW)
    assert refused.headers["content-type"] == "application/problem+json"
    assert (refused.headers["retry-after"], refused.json["status"]) == ("1", 429)
    assert "2 requests a second" in refused.json["detail"]


async def test_what_stops_something_and_other_callers_are_let_in(house: House) -> None:
    client = await limited(house, requests_per_second=SLOW)
    for key in ("a", "b"):
        assert (await client.post("/schedules", schedule(key))).status == 201
    await use_up(client)
    assert (await client.post("/schedules/a/pause")).status == 200
    assert (await client.delete("/schedules/a")).status == 204
    assert (await client.post("/schedules/b/resume")).status == 429
    assert (await client.get("/healthcheck")).status == 200
    assert (await Client(client.app, {"x-forwarded-email": ADMIN}).get("/schedules")).status == 200


async def test_what_is_called_like_a_stop_is_counted(house: House) -> None:
    client = await limited(house, requests_per_second=SLOW)
    assert (await client.put("/schedules/pause", schedule("pause"))).status == 201
    await use_up(client)
    assert (await client.get("/schedules/pause")).status == 429
    assert (await client.get("/apps/somewhere/jobs/some/stop")).status == 429
    assert (await client.put("/schedules/pause", schedule("pause"))).status == 429
    assert (await client.post("/schedules/pause/pause")).status == 200


async def test_subscriptions_and_topics_called_like_a_stop_are_counted(house: House) -> None:
    client = await limited(house, requests_per_second=SLOW)
    await use_up(client)
    assert (await client.put("/bus/subscriptions/stop", {})).status == 429
    assert (await client.put("/bus/topics/pause", {})).status == 429
    assert (await client.post("/bus/subscriptions/some/pause")).status == 404


async def test_strangers_are_not_counted(house: House) -> None:
    client = await limited(house, requests_per_second=SLOW)
    strangers = [client.service("nobody's"), client.someone("nobody@example.com"), Client(client.app)]
    for stranger in strangers:
        assert {(await stranger.get("/schedules")).status for _ in range(4 * SLOW)} == {401}
    assert (await client.get("/schedules")).status == 200


async def test_a_namespace_has_so_many_unfinished_schedules(house: House) -> None:
    client = await limited(house, pending_schedules=3)
    assert [(await client.post("/schedules", schedule(key))).status for key in "abc"] == [201] * 3
    refused = await client.post("/schedules", schedule("d"))
    assert (refused.status, refused.json["field"]) == (409, "key")
    assert "3 unfinished schedules" in refused.json["detail"]
    assert (await client.put("/schedules/d", schedule("d"))).status == 409
    assert (await client.post("/schedules", schedule("a"))).status == 200
    assert (await client.put("/schedules/b", schedule("b", every=60))).status == 200
    bulk = await client.post("/schedules/bulk", [schedule(key) for key in "aef"])
    assert [item["status"] for item in bulk.json] == [200, 409, 409]
    others = await house.admin.post("/tokens", {"name": "other"})
    assert (await client.service(others.json["token"]).post("/schedules", schedule("d"))).status == 201


async def test_room_for_some_of_many_is_used(house: House) -> None:
    client = await limited(house, pending_schedules=3)
    bulk = await client.post("/schedules/bulk", [schedule(key) for key in "abcde"])
    assert [item["status"] for item in bulk.json] == [201] * 3 + [409] * 2


async def test_the_shortest_interval_is_the_deployments(house: House) -> None:
    client = await limited(house, least_every_seconds=60)
    refused = await client.post("/schedules", schedule("often", every=59))
    assert (refused.status, refused.json["field"]) == (422, "every")
    assert "at least 60 seconds" in refused.json["detail"]
    bulk = await client.post("/schedules/bulk", [schedule("often", every=1), schedule("minutely", every=60)])
    assert [item["status"] for item in bulk.json] == [422, 201]
