"""The picture of a subscription over time: it holds every call, and the age of what waits grows until it is settled."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.api.bus.pages.standing import SLICES, draw_history, stand
from services.api.bus.pages.subscriptions import read_condition
from services.api.http.pages.pictures import Piece, stacked_columns
from shared.domain.instants import format_instant

NOW = datetime(2030, 12, 24, 15, tzinfo=UTC)
FIRST = "0001-01-01T00:00+05:00"  # in UTC, no calendar has it


def told(seconds: float) -> str:
    """So long ago, as the API writes it."""
    return format_instant(NOW - timedelta(seconds=seconds))


def a_delivery(
    first: float, cut: float, settled: float | None, *calls: tuple[float, int], missing: int = 0
) -> dict[str, Any]:
    return {
        "first_at": told(first),
        "cut_at": told(cut),
        "settled_at": None if settled is None else told(settled),
        "made": len(calls) + missing,
        "attempts": [{"at": told(at), "status": status} for at, status in calls],
    }


def test_it_holds_every_call_and_the_age_of_what_waits() -> None:
    late = a_delivery(601, 600, 300, (600, 500), (450, 0), (300, 204), missing=7)
    still = a_delivery(121, 120, None, (120, 503))
    history = draw_history([still, late], NOW)
    assert history is not None
    assert (history.taken, history.failed, history.unknown) == (1, 3, 7)
    assert (history.begins, len(history.calls), len(history.waits)) == (NOW - timedelta(seconds=600), SLICES, SLICES)
    grows, rests, grows_again = history.waits[:31], history.waits[31:48], history.waits[48:]
    assert list(grows) == sorted(grows)
    assert max(grows) == pytest.approx(301)
    assert set(rests) == {0.0}
    assert grows_again[-1] == pytest.approx(121)


def test_it_is_a_minute_long_at_least_and_nothing_without_deliveries() -> None:
    assert draw_history([], NOW) is None
    history = draw_history([a_delivery(1, 1, 1, (1, 200))], NOW)
    assert history is not None
    assert history.begins == NOW - timedelta(minutes=1)
    assert history.calls[-1] == (Piece("taken", 1, "good"), Piece("failed", 0, "bad"))


def test_columns_of_parts_stand_on_each_other() -> None:
    drawn = str(stacked_columns([[Piece("a", 1, "good"), Piece("<b>", 3, "bad")], []], says="<i>", height=100))
    assert drawn.count("<rect") == 2
    assert 'y="80.0"' in drawn
    assert 'y="20.0"' in drawn
    assert "<b>" not in drawn
    assert "<i>" not in drawn


@pytest.mark.parametrize(
    ("state", "health", "word"),
    [
        ("suspended", {"failures": 3, "points": 0}, "suspended"),
        ("paused", None, "paused"),
        ("active", None, "unknown"),
        ("active", {"failures": 1, "points": 98, "failing_since": told(9)}, "failing"),
        ("active", {"failures": 0, "points": 98}, "recovering"),
        ("active", {"failures": 0, "points": 100}, "healthy"),
    ],
)
def test_one_word_says_how_it_stands(state: str, health: dict[str, Any] | None, word: str) -> None:
    about = {"state": state, "reason": "r", "updated_at": told(5), "callback": "https://[", "key": "k"}
    standing = stand(about, health)
    assert (standing.word, standing.is_trouble) == (word, word in {"suspended", "failing"})
    assert standing.host == "https://["


def test_a_condition_is_read_as_it_is_typed() -> None:
    assert read_condition(" /a  in [1, 2] ") == {"path": "/a", "op": "in", "value": [1, 2]}
    assert read_condition("/a eq two words") == {"path": "/a", "op": "eq", "value": "two words"}
    assert read_condition("/a exists") == {"path": "/a", "op": "exists", "value": True}
