"""Errors say why, and what they are about."""

import time

from shared.core.errors import Invalid, LaneLost, Refused, TooMany, suggest


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


def test_the_nearest_known_name_is_suggested() -> None:
    assert suggest("nmae", ["city", "name"]) == "; did you mean name?"
    assert suggest("zebra", ["city", "name"]) == ""
    assert suggest("DRY-run", ["name", "dryRun"]) == "; did you mean dryRun?"
    assert suggest("ulr", ["url"]) == "; did you mean url?"
    assert suggest("rate", ["createdBy", "share", "state", "template"]) == ""


def test_a_suggestion_takes_no_time_however_many_and_long_the_names_are() -> None:
    began = time.process_time()
    for written in ("ab" * 30, "ab" * 30_000):
        assert suggest(written, (f"{number}{'ba' * 25}" for number in range(100_000)))[:1] in {"", ";"}
    assert suggest("a" * 60, ["a" * 60_000]) == ""
    assert time.process_time() - began < 2
