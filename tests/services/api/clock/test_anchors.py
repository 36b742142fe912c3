"""Schedules around an anchor over HTTP: made, shown, moved alone and by label, and refused."""

from typing import Any

import pytest

from tests.services.api.conftest import House
from tests.services.api.test_bad_input import is_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANCHOR = "2031-03-01T18:00:00Z"
CALLBACK = {"type": "http", "data": {"url": "https://example.com/remind"}}
TRAINING = {"anchor": ANCHOR, "offsets": ["-90m", "+3h", "0s", "+1d12h"], "callback": CALLBACK}


async def make(house: House, key: str, **more: Any) -> dict[str, Any]:
    made = await house.admin.post("/schedules", TRAINING | {"key": key} | more)
    assert made.status == 201, made.body
    shown: dict[str, Any] = made.json
    return shown


async def test_a_schedule_is_shown_with_its_anchor_and_offsets(house: House) -> None:
    made = await make(house, "anchored")
    assert (made["anchor"], made["offsets"]) == (ANCHOR, ["-90m", "0s", "+3h", "+36h"])
    assert "schedules" not in made
    assert made["next"] == [
        "2031-03-01T16:30:00Z", "2031-03-01T18:00:00Z", "2031-03-01T21:00:00Z", "2031-03-03T06:00:00Z",
    ]  # fmt: skip
    again = await house.admin.post("/schedules", TRAINING | {"key": "anchored", "offsets": made["offsets"]})
    assert again.status == 200
    other = await house.admin.post("/schedules", TRAINING | {"key": "anchored", "offsets": ["0s"]})
    assert other.status == 409 and "differs in: offsets" in other.json["reason"]
    preview = await house.admin.post("/schedules/preview", TRAINING)
    assert preview.json["next"] == made["next"]


async def test_an_anchor_is_moved_by_patch_and_put(house: House) -> None:
    await make(house, "patched")
    moved = await house.admin.send("PATCH", "/schedules/patched", {"anchor": "2031-03-02T18:00:00+01:00"})
    assert (moved.status, moved.json["anchor"], moved.json["next"][0]) == (
        200, "2031-03-02T17:00:00Z", "2031-03-02T15:30:00Z",
    )  # fmt: skip
    put = await house.admin.put("/schedules/patched", TRAINING | {"anchor": "2031-04-01T00:00:00Z"})
    assert (put.status, put.json["next"][0]) == (200, "2031-03-31T22:30:00Z")
    due = (await house.admin.get("/schedules/patched")).json["next"]
    gone = await house.admin.delete(f"/schedules/patched/occurrences/{due[0]}")
    assert gone.status == 204
    assert (await house.admin.get("/schedules/patched")).json["next"] == due[1:]
    # It was taken out, so no anchor brings it back.
    await house.admin.send("PATCH", "/schedules/patched", {"anchor": ANCHOR})
    assert len((await house.admin.get("/schedules/patched")).json["next"]) == 3


async def test_a_day_is_moved_by_its_label(house: House) -> None:
    for n in range(3):
        await make(house, f"rain-{n}", labels={"day": "rain"})
    body = {"labels": ["day:rain"], "by": "+7d"}
    for _ in range(2):
        moved = await house.admin.post("/schedules/move", body, idempotency_key="rain")
        assert (moved.status, moved.json) == (200, {"moved": 3, "unmoved": 0}), moved.body
    assert (await house.admin.get("/schedules/rain-1")).json["anchor"] == "2031-03-08T18:00:00Z"
    assert (await house.admin.post("/schedules/move", body | {"by": "+1d"}, idempotency_key="more")).json["moved"] == 3
    assert (await house.admin.post("/schedules/move", body, idempotency_key="rain")).json["moved"] == 3
    assert (await house.admin.get("/schedules/rain-1")).json["anchor"] == "2031-03-09T18:00:00Z"
    is_problem(
        await house.admin.post("/schedules/move", body | {"by": "+8d"}, idempotency_key="rain"), 422, "Idempotency-Key"
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"offsets": ["90 minutes"]}, "offsets[0]"),
        ({"offsets": ["-90m", "soon"]}, "offsets[1]"),
        ({"offsets": ["-"]}, "offsets[0]"),
        ({"offsets": [""]}, "offsets[0]"),
        ({"offsets": ["4000d"]}, "offsets[0]"),
        ({"offsets": [5]}, "offsets[0]"),
        ({"offsets": []}, "offsets"),
        ({"offsets": None}, "offsets"),
        ({"offsets": [f"{n}s" for n in range(1_001)]}, "offsets"),
        ({"anchor": None}, "schedules"),
        ({"anchor": "tomorrow"}, "anchor"),
        ({"anchor": "2200-12-31T00:00:00Z"}, "anchor"),
        ({"anchor": "2020-01-01T00:00:00Z"}, "anchor"),
        ({"schedules": [ANCHOR]}, "anchor"),
        ({"cron": "@daily"}, "anchor"),
        ({"every": 60}, "anchor"),
        ({"starts_at": ANCHOR}, "starts_at"),
        ({"max_occurrences": 3}, "max_occurrences"),
        ({"timezone": "UTC"}, "timezone"),
    ],
)
async def test_a_bad_anchor_is_refused(house: House, change: dict[str, Any], field: str) -> None:
    body = {name: value for name, value in (TRAINING | change).items() if value is not None}
    for reply in (
        await house.admin.post("/schedules", body | {"key": "bad"}),
        await house.admin.put("/schedules/bad", body),
        await house.admin.post("/schedules/preview", body),
    ):
        is_problem(reply, 422, field)
    assert (await house.admin.get("/schedules/bad")).status == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"anchor": "x"}, "anchor"),
        ({"anchor": 5}, "anchor"),
        ({}, "anchor"),
        ({"anchor": ANCHOR, "offsets": ["0s"]}, "offsets"),
    ],
)
async def test_a_bad_patch_changes_nothing(house: House, body: dict[str, Any], field: str) -> None:
    await house.admin.put("/schedules/stays", TRAINING)
    is_problem(await house.admin.send("PATCH", "/schedules/stays", body), 422, field)
    assert (await house.admin.get("/schedules/stays")).json["anchor"] == ANCHOR


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"labels": [], "by": "1d"}, "labels"),
        ({"labels": ["day"], "by": "1d"}, "labels"),
        ({"labels": ["day:rain"], "by": "a week"}, "by"),
        ({"labels": ["day:rain"]}, "by"),
        ({"by": "1d"}, "labels"),
    ],
)
async def test_a_bad_move_changes_nothing(house: House, body: dict[str, Any], field: str) -> None:
    is_problem(await house.admin.post("/schedules/move", body), 422, field)


async def test_what_has_no_anchor_is_not_moved(house: House) -> None:
    plain = {"key": "plain", "every": 3600, "callback": CALLBACK}
    assert (await house.admin.post("/schedules", plain)).status == 201
    is_problem(await house.admin.send("PATCH", "/schedules/plain", {"anchor": ANCHOR}), 422, "anchor")
    is_problem(await house.admin.send("PATCH", "/schedules/none", {"anchor": ANCHOR}), 404, "key")
    is_problem(await house.admin.post("/schedules", plain | {"key": "move"}), 422, "key")
