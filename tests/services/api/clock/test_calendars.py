"""Calendars over HTTP, the schedules that exclude them, and backfills."""

from typing import Any

import pytest

from tests.services.api.client import Reply
from tests.services.api.conftest import House
from tests.services.api.test_bad_input import is_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLBACK = {"type": "http", "data": {"url": "https://example.com/remind"}}
DAILY = {"cron": "0 9 * * *", "starts_at": "2031-12-20T00:00:00Z", "callback": CALLBACK}


async def put(house: House, name: str, *dates: str, **more: Any) -> Reply:
    return await house.admin.put(f"/calendars/{name}", {"dates": dates, **more})


async def test_a_calendar_is_made_shown_replaced_and_deleted(house: House) -> None:
    made = await put(house, "feasts", "2031-12-26", "2031-12-25", "2031-12-25", timezone="Europe/Paris")
    assert made.status == 201, made.body
    shown = {"name": "feasts", "dates": ["2031-12-25", "2031-12-26"], "timezone": "Europe/Paris"}
    assert {name: made.json[name] for name in shown} == shown
    assert (await house.admin.get("/calendars/feasts")).json == made.json
    assert made.json in (await house.admin.get("/calendars")).json
    assert (await put(house, "feasts", "2031-12-25")).status == 200
    assert (await house.admin.delete("/calendars/feasts")).status == 204
    is_problem(await house.admin.get("/calendars/feasts"), 404, "name")
    is_problem(await house.admin.delete("/calendars/feasts"), 404, "name")


async def test_calendars_belong_to_their_namespace(house: House) -> None:
    stranger = await house.service()
    await put(house, "own", "2031-12-25")
    is_problem(await stranger.get("/calendars/own"), 404, "name")
    assert (await stranger.get("/calendars?namespace=user:admin@example.com")).status == 403
    refused = await stranger.post("/schedules", DAILY | {"key": "k", "exclude": ["own"]})
    is_problem(refused, 422, "exclude[0]")
    for name in ("b", "a", "c"):
        assert (await stranger.put(f"/calendars/{name}", {"dates": ["2031-12-25"]})).status == 201
    assert [each["name"] for each in (await stranger.get("/calendars?limit=2")).json] == ["a", "b"]


@pytest.mark.parametrize(
    ("shift", "expected"),
    [
        (None, ["2031-12-24T09:00:00Z", "2031-12-27T09:00:00Z"]),
        ("next", ["2031-12-24T09:00:00Z", "2031-12-27T09:00:00Z"]),
        ("previous", ["2031-12-24T09:00:00Z", "2031-12-27T09:00:00Z"]),
    ],
)
async def test_a_preview_shows_what_is_left_out(house: House, shift: str | None, expected: list[str]) -> None:
    await put(house, "feasts", "2031-12-25", "2031-12-26")
    body = DAILY | {"key": "xmas", "exclude": ["feasts"], "ends_at": "2031-12-28T00:00:00Z"}
    body |= {} if shift is None else {"shift": shift}
    preview = (await house.admin.post("/schedules/preview", body)).json
    assert preview["next"][-2:] == expected
    to = {None: None, "next": "2031-12-27T09:00:00Z", "previous": "2031-12-24T09:00:00Z"}[shift]
    assert preview["left_out"][0] == {"at": "2031-12-25T09:00:00Z", "calendar": "feasts", "shifted_to": to}
    made = await house.admin.put("/schedules/xmas", body)
    assert made.json["next"] == preview["next"], made.body
    assert (made.json["exclude"], made.json.get("shift")) == (["feasts"], shift)
    assert (await house.admin.get("/schedules/xmas")).json["next"] == preview["next"]


async def test_a_calendar_in_use_is_not_deleted(house: House) -> None:
    await put(house, "used", "2031-12-25")
    for n in range(12):
        assert (await house.admin.put(f"/schedules/user-{n:02}", DAILY | {"exclude": ["used"]})).status == 201
    refused = await house.admin.delete("/calendars/used")
    is_problem(refused, 409, "name")
    assert "user-00, user-01" in refused.json["reason"] and refused.json["reason"].endswith("user-09, …")
    for n in range(12):
        await house.admin.put(f"/schedules/user-{n:02}", DAILY)
    assert (await house.admin.delete("/calendars/used")).status == 204


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"dates": []}, "dates"),
        ({}, "dates"),
        ({"dates": ["2031-02-30"]}, "dates[0]"),
        ({"dates": ["2031-12-25", "25.12.2031"]}, "dates[1]"),
        ({"dates": ["20311225"]}, "dates[0]"),
        ({"dates": [f"2031-01-{n % 28 + 1:02}" for n in range(1_001)]}, "dates"),
        ({"dates": ["2031-12-25"], "timezone": "Mars/North"}, "timezone"),
        ({"dates": ["2031-12-25"], "zone": "UTC"}, "zone"),
    ],
)
async def test_a_bad_calendar_is_refused(house: House, body: dict[str, Any], field: str) -> None:
    is_problem(await house.admin.put("/calendars/bad", body), 422, field)
    assert (await house.admin.get("/calendars/bad")).status == 404


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"exclude": ["none"]}, "exclude[0]"),
        ({"exclude": ["feasts", "none"]}, "exclude[1]"),
        ({"exclude": [f"c{n}" for n in range(11)]}, "exclude"),
        ({"exclude": ["feasts"], "shift": "nearest"}, "shift"),
        ({"shift": "next"}, "shift"),
        ({"exclude": ["feasts"], "shift": "next", "cron": None, "every": 3_600}, "shift"),
        ({"exclude": ["feasts"], "cron": None, "starts_at": None, "schedules": ["2031-12-25T09:00:00Z"]}, "exclude"),
    ],
)
async def test_a_bad_exclusion_is_refused(house: House, change: dict[str, Any], field: str) -> None:
    await put(house, "feasts", "2031-12-25")
    body = {name: value for name, value in (DAILY | change).items() if value is not None}
    for reply in (
        await house.admin.post("/schedules", body | {"key": "bad"}),
        await house.admin.put("/schedules/bad", body),
        await house.admin.post("/schedules/preview", body),
    ):
        is_problem(reply, 422, field)
    assert (await house.admin.get("/schedules/bad")).status == 404


async def test_a_backfill_is_accepted_once(house: House) -> None:
    body = {"key": "fill", "every": 3_600, "callback": CALLBACK}
    assert (await house.admin.post("/schedules", body)).status == 201
    asked = {"from": "2026-11-01T00:00:00Z", "to": "2026-11-01T09:30:00Z"}
    for count in (10, 0):
        reply = await house.admin.post("/schedules/fill/backfill", asked)
        assert (reply.status, reply.json) == (202, {"instants": count}), reply.body
    wider = {"from": "2026-10-31T22:00:00Z", "to": "2026-11-01T10:00:00Z"}
    assert (await house.admin.post("/schedules/fill/backfill", wider)).json == {"instants": 3}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"from": "2026-11-02T00:00:00Z", "to": "2026-11-01T00:00:00Z"}, "from"),
        ({"from": "2026-11-01T00:00:00Z", "to": "2199-11-01T00:00:00Z"}, "to"),
        ({"from": "1999-01-01T00:00:00Z", "to": "2026-11-01T00:00:00Z"}, "from"),
        ({"from": "yesterday", "to": "2026-11-01T00:00:00Z"}, "from"),
        ({"from": "2026-11-01T00:00:00Z"}, "to"),
        ({}, "from"),
    ],
)
async def test_a_bad_backfill_fires_nothing(house: House, body: dict[str, Any], field: str) -> None:
    await house.admin.put("/schedules/unfilled", {"every": 3_600, "callback": CALLBACK})
    is_problem(await house.admin.post("/schedules/unfilled/backfill", body), 422, field)
    due = (await house.admin.get("/schedules/due?within=60")).json["instants"]
    assert [each for each in due if each["key"] == "unfilled"] == []


async def test_a_schedule_that_is_not_there_is_not_backfilled(house: House) -> None:
    body = {"from": "2026-11-01T00:00:00Z", "to": "2026-11-01T00:00:00Z"}
    is_problem(await house.admin.post("/schedules/none/backfill", body), 404, "key")
