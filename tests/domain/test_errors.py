"""Errors say why, and what they are about."""

from shared.domain.errors import Invalid, LaneLost, Refused, TooMany


def test_a_refusal_tells_its_reason_its_field_and_its_value() -> None:
    refused = Invalid("too long", field="name", value="x")
    assert (str(refused), refused.reason, refused.field, refused.value) == ("too long", "too long", "name", "x")
    assert (Refused("no").field, Refused("no").value) == (None, None)


def test_who_asks_too_often_is_told_when_to_ask_again() -> None:
    error = TooMany("slowly", retry_after_seconds=7)
    assert (str(error), error.reason, error.retry_after_seconds) == ("slowly", "slowly", 7)


def test_a_lost_lane_is_named() -> None:
    error = LaneLost("lane-1", "fenced")
    assert (str(error), error.lane) == ("lane lane-1: fenced", "lane-1")
