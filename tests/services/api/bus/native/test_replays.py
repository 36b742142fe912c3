"""`/bus/subscriptions/{key}/replays`: who may ask for one, what is refused, and how far it is."""

from datetime import timedelta
from typing import Any

import pytest

from shared.core.instants import format_instant
from tests.services.api.bus.conftest import is_refused
from tests.services.api.bus.native.conftest import Delivered
from tests.services.worker.bus.delivering import NAMESPACE

pytestmark = [pytest.mark.bus_routes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

PATH = "subscriptions/r/replays"
SINCE = "2020-01-01T00:00:00Z"


async def test_one_is_asked_for_shown_and_ended(delivered: Delivered) -> None:
    bus, path, operator = delivered.bus, delivered.about(PATH), delivered.operator
    await bus.subscribe("r", topics=("orders",))
    await bus.subscribing.pause(NAMESPACE, "r")
    log = delivered.house.servers.settings.bus.log_topic
    (before,) = (await delivered.house.servers.stream.spans(log)).values()
    event = {"type": "create", "url": "https://example.com/1"}
    sent = await delivered.stranger.post("/bus/topics/replayed/events", [event, event])
    assert sent.status == 202, sent.body
    assert is_refused(await delivered.viewer.post(path, {"from": SINCE}), 403)
    assert is_refused(await delivered.stranger.post("/bus/subscriptions/r/replays", {"from": SINCE}), 404)
    wish = {"from": SINCE, "to": "2100-01-01T00:00:00Z", "topics": ["replayed"], "filter": {"types": ["create"]}}
    made = await operator.post(path, wish)
    assert made.status == 202, made.body
    assert (made.json["number"], made.json["state"], made.json["from"]) == (1, "running", SINCE)
    assert made.json["topics"] == ["replayed"]
    assert made.json["filter"] == {"types": ["create"], "url_prefix": "", "data": []}
    assert made.json["total"] == before[1] + 2
    assert is_refused(await operator.post(path, wish), 409)
    assert (await delivered.viewer.get(path)).json == [made.json]
    assert is_refused(await delivered.viewer.delete(path), 403)
    assert (await operator.delete(path)).status == 204
    assert is_refused(await operator.delete(path), 404)
    again = await operator.post(path, {"from": SINCE})
    assert (again.status, again.json["number"], again.json["to"], again.json["filter"]) == (202, 2, None, None)
    first = await delivered.viewer.get(delivered.about(PATH, "limit=1"))
    assert [each["number"] for each in first.json] == [2]
    assert 'rel="next"' in first.headers["link"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"from": "1969-12-31T23:59:59Z"}, "from"),
        ({"from": "2200-01-01T00:00:00Z"}, "from"),
        ({"from": "2190-01-01T00:00:00Z", "to": "2191-01-01T00:00:00Z"}, "from"),
        ({"from": SINCE, "to": SINCE}, "to"),
        ({"from": SINCE, "topics": ["No"]}, "topics"),
        ({"from": SINCE, "filter": {"data": [{"path": "x", "op": "eq", "value": 1}]}}, "filter.data[0].path"),
        ({"from": SINCE, "until": SINCE}, "until"),
    ],
)
async def test_what_is_wrong_is_told_by_its_field(delivered: Delivered, body: dict[str, Any], field: str) -> None:
    await delivered.bus.subscribe("w")
    refused = await delivered.operator.post(delivered.about("subscriptions/w/replays"), body)
    assert (refused.status, refused.json["field"]) == (422, field), refused.body
    assert (await delivered.operator.get(delivered.about("subscriptions/w/replays"))).json == []


async def test_the_first_instant_that_there_is_begins_one(delivered: Delivered) -> None:
    await delivered.bus.subscribe("e")
    path, now = delivered.about("subscriptions/e/replays"), await delivered.bus.time.now()
    ends = format_instant(now + timedelta(days=1))
    assert (await delivered.operator.post(path, {"from": "1970-01-01T00:00:00Z", "to": ends})).status == 202
