"""How a subscription stands in one word, and how a condition is typed."""

from typing import Any

import pytest

from services.api.bus.pages.subscriptions import read_condition, stand

pytestmark = pytest.mark.bus_routes


@pytest.mark.parametrize(
    ("state", "health", "word"),
    [
        ("suspended", {"failures": 3, "accepted_percent": 0}, "suspended"),
        ("paused", None, "paused"),
        ("active", None, "unknown"),
        ("active", {"failures": 1, "accepted_percent": 98, "failing_since": "2030-12-24T14:59:51Z"}, "failing"),
        ("active", {"failures": 0, "accepted_percent": 98}, "recovering"),
        ("active", {"failures": 0, "accepted_percent": 100}, "healthy"),
    ],
)
def test_one_word_says_how_it_stands(state: str, health: dict[str, Any] | None, word: str) -> None:
    about = {"state": state, "reason": "r", "updated_at": "2030-12-24T14:59:55Z", "callback": "https://[", "key": "k"}
    standing = stand(about, health)
    assert (standing["word"], standing["is_trouble"]) == (word, word in {"suspended", "failing"})
    assert standing["host"] == "https://["


def test_a_condition_is_read_as_it_is_typed() -> None:
    assert read_condition(" /a  in [1, 2] ") == {"path": "/a", "op": "in", "value": [1, 2]}
    assert read_condition("/a eq two words") == {"path": "/a", "op": "eq", "value": "two words"}
    assert read_condition("/a exists") == {"path": "/a", "op": "exists", "value": True}
