"""How values are written on a page, whatever callers put into them."""

import re

import pytest

from services.api.http.pages.html import UNKNOWN, exactly, full_stop, instant, pretty, read_time, zone_name


@pytest.mark.parametrize("value", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "yesterday"])
def test_an_instant_that_no_calendar_has_is_unknown(value: str) -> None:
    assert UNKNOWN in instant(value)


@pytest.mark.parametrize("nanoseconds", [10**12, 10**14, -(10**14), 2**63 - 1, -(2**63)])
def test_nanoseconds_of_any_year_are_an_instant(nanoseconds: int) -> None:
    at = read_time(nanoseconds)
    assert at is not None
    assert abs(at.timestamp() - nanoseconds / 1e9) < 1


@pytest.mark.parametrize("text", ["[" * 20_000, "[" * 20_000 + "]" * 20_000, '{"a":' * 3_000 + "1" + "}" * 3_000])
def test_what_is_nested_too_deep_is_shown_as_it_is(text: str) -> None:
    assert pretty(text) == text


@pytest.mark.parametrize("name", [".*", "Payments (EU)", "a+b[c]{2}|^$", "-&&--", "\\d/日本 \N{FIRE}", "(a+)+$"])
def test_a_pattern_takes_the_name_alone(name: str) -> None:
    pattern = exactly(name)
    assert re.fullmatch(r"(?:[A-Za-z0-9]|\\u\{[0-9a-f]+\})*", pattern)
    read = re.sub(r"\\u\{([0-9a-f]+)\}", lambda match: chr(int(match[1], 16)), pattern)
    assert read == name


def test_a_sentence_ends_once() -> None:
    sentences = ["gone.", "Gone.", "did you mean like?"]
    assert [full_stop(text) for text in ("gone", *sentences)] == ["gone.", *sentences]


def test_a_zone_has_one_spelling() -> None:
    told = [zone_name(zone) for zone in ("+0545", "-0330", "rest", "Mars", "")]
    assert told == ["UTC+05:45", "UTC\N{MINUS SIGN}03:30", "no zone", "Mars", ""]
