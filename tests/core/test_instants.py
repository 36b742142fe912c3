"""Timestamps become UTC instants of whole milliseconds, never earlier than written; a window is filled evenly."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Invalid
from shared.core.instants import (
    EPOCH,
    LATEST,
    ceil_ms,
    first_shown,
    format_instant,
    from_ms,
    from_ns,
    ms,
    ns,
    read_instant,
    read_wall_clock,
    spread_ms,
)
from shared.core.time_zones import time_zone

counts = st.integers(0, ms(LATEST))
moments = st.datetimes(datetime(1970, 1, 2), datetime(2200, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001
offsets = st.integers(-(23 * 60 + 59), 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))

GOOD = {
    "2026-12-24T14:00:00Z": "2026-12-24T14:00:00Z",
    "2026-12-24t14:00:00z": "2026-12-24T14:00:00Z",
    "2026-12-24 14:00:00Z": "2026-12-24T14:00:00Z",
    "2026-12-24T14:00Z": "2026-12-24T14:00:00Z",
    "2026-12-24T14:00:00+01:00": "2026-12-24T13:00:00Z",
    "2026-12-24T14:00:00-0330": "2026-12-24T17:30:00Z",
    "2026-12-24T14:00:00+05": "2026-12-24T09:00:00Z",
    "2026-12-24T14:00:00-00:00": "2026-12-24T14:00:00Z",
    "2027-01-01T00:30:00+05:45": "2026-12-31T18:45:00Z",
    "2026-12-24T14:00:00.25Z": "2026-12-24T14:00:00.250Z",
    "2026-12-24T14:00:00,007Z": "2026-12-24T14:00:00.007Z",
    "2026-12-24T14:00:00.0001Z": "2026-12-24T14:00:00.001Z",
    "2026-12-24T14:00:00.000000001Z": "2026-12-24T14:00:00.001Z",
    "2026-12-24T14:00:00.001000000Z": "2026-12-24T14:00:00.001Z",
    "2026-12-31T23:59:59.9991Z": "2027-01-01T00:00:00Z",
    "2028-02-29T00:00:00Z": "2028-02-29T00:00:00Z",
    "1970-01-01T00:00:00Z": "1970-01-01T00:00:00Z",
    "1969-12-31T23:00:00-01:00": "1970-01-01T00:00:00Z",
    "2200-12-31T23:59:59.999Z": "2200-12-31T23:59:59.999Z",
    "2201-01-01T00:00:00+01:00": "2200-12-31T23:00:00Z",
}

BAD = {
    "": "a date, a time and a zone",
    "tomorrow": "a date, a time and a zone",
    "1798120800": "a date, a time and a zone",
    "2026-12-24": "a date, a time and a zone",
    "2026-12-24Z": "a date, a time and a zone",
    "20261224T140000Z": "a date, a time and a zone",
    "2026-12-24T14Z": "a date, a time and a zone",
    "2026-12-24T14:00:00Z\n": "a date, a time and a zone",
    " 2026-12-24T14:00:00Z": "a date, a time and a zone",
    "2026-12-24T14:00:00.Z": "a date, a time and a zone",
    "2026-12-24T14:00.5Z": "a date, a time and a zone",
    "2026-12-24T14:00:00+24:00": "a date, a time and a zone",
    "2026-12-24T14:00:00+01:60": "a date, a time and a zone",
    "2026-12-24T14:00:00 Europe/Paris": "a date, a time and a zone",
    "2026-12-24T14:00:00CET": "a date, a time and a zone",
    "٢٠٢٦-12-24T14:00:00Z": "a date, a time and a zone",
    "+12026-12-24T14:00:00Z": "a date, a time and a zone",
    "2026-12-24T14:00:00": "needs a zone, as in 2026-12-24T14:00:00Z",
    "2026-12-24T14:00:00.25": "needs a zone, as in 2026-12-24T14:00:00Z",
    "2026-13-24T14:00:00Z": "no such date or time",
    "2027-02-29T14:00:00Z": "no such date or time",
    "2026-12-24T24:00:00Z": "no such date or time",
    "2026-12-24T14:60:00Z": "no such date or time",
    "2026-12-24T23:59:60Z": "no such date or time",
    "0000-01-01T00:00:00Z": "1970 to 2200",
    "0001-01-01T00:00:00+14:00": "1970 to 2200",
    "1969-12-31T23:59:59.999Z": "1970 to 2200",
    "1970-01-01T00:30:00+01:00": "1970 to 2200",
    "2201-01-01T00:00:00Z": "1970 to 2200",
    "2200-12-31T23:30:00-01:00": "1970 to 2200",
    "2200-12-31T23:59:59.9991Z": "1970 to 2200",
    "9999-12-31T23:59:59.9999-23:59": "1970 to 2200",
}


@pytest.mark.parametrize(("text", "instant"), GOOD.items())
def test_a_timestamp_is_read(text: str, instant: str) -> None:
    assert format_instant(read_instant(text, field="schedules[0]")) == instant


@pytest.mark.parametrize(("text", "rule"), BAD.items())
def test_a_bad_timestamp_is_refused_with_its_field_and_the_rule(text: str, rule: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_instant(text, field="schedules[3]")
    assert rule in refused.value.reason
    assert (refused.value.field, refused.value.value) == ("schedules[3]", text)


@pytest.mark.parametrize("text", ["2026-12-24T14:00:00", "2026-12-24 14:00", "2026-12-24T14:00:00.000"])
def test_a_time_on_every_clock_is_read_as_if_it_were_utc(text: str) -> None:
    assert format_instant(read_wall_clock(text, field="startsAt")) == "2026-12-24T14:00:00Z"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("2026-12-24T14:00:00Z", "without `Z` or an offset, as in 2026-12-24T14:00:00"),
        ("2026-12-24T14:00:00+01:00", "without `Z` or an offset"),
        ("2026-12-24", "a date and a time"),
        ("", "a date and a time"),
        ("2027-02-29T14:00:00", "no such date or time"),
        ("2201-01-01T00:00:00", "1970 to 2200"),
    ],
)
def test_a_time_on_every_clock_has_no_zone(text: str, rule: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_wall_clock(text, field="startsAt")
    assert (refused.value.field, rule in refused.value.reason) == ("startsAt", True)


@given(moments, offsets)
def test_what_is_read_is_up_to_a_millisecond_later_and_never_earlier(moment: datetime, offset: timezone) -> None:
    read = read_instant(moment.astimezone(offset).isoformat(), field="at")
    assert timedelta(0) <= read - moment < timedelta(milliseconds=1)
    assert read.microsecond % 1_000 == 0
    assert read.tzinfo is UTC


@given(counts)
def test_milliseconds_and_text_come_back_as_they_were(count: int) -> None:
    instant = from_ms(count)
    assert ms(instant) == ceil_ms(instant) == count
    assert read_instant(format_instant(instant), field="at") == instant
    assert ("." in format_instant(instant)) == (count % 1_000 > 0)


@given(moments)
def test_what_is_finer_than_a_millisecond_lies_between_two(moment: datetime) -> None:
    assert from_ms(ms(moment)) <= moment <= from_ms(ceil_ms(moment))
    assert ceil_ms(moment) - ms(moment) == (moment.microsecond % 1_000 > 0)


def test_an_instant_of_another_zone_is_written_in_utc() -> None:
    assert format_instant(datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))) == "2026-07-01T10:00:00Z"
    assert ms(EPOCH) == 0


@given(st.text(st.characters(codec="utf-8")), st.floats(0, 1e7))
def test_a_place_lies_in_the_window_and_stays(key: str, window_seconds: float) -> None:
    place = spread_ms(key, window_seconds)
    assert place == spread_ms(key, window_seconds)
    assert place == 0 or 0 < place < window_seconds * 1_000


def test_the_smallest_window_has_two_places() -> None:
    assert {spread_ms(f"key-{number}", 0.002) for number in range(20)} == {0, 1}
    assert {spread_ms(f"key-{number}", 0.001) for number in range(20)} == {0}


def test_a_place_is_the_same_in_every_release() -> None:
    assert [spread_ms(key, 3_600) for key in ("a", "training-42")] == [3_187_826, 2_459_873]


@pytest.mark.parametrize("name", ["{}", "training-invitations-{}", "user:{:08d}"])
def test_keys_fill_a_window_evenly(name: str) -> None:
    keys, slots = 60_000, 60
    filled = [0] * slots
    for number in range(keys):
        filled[spread_ms(name.format(number), 60) // 1_000] += 1
    expected = keys / slots
    chi_squared = sum((count - expected) ** 2 / expected for count in filled)
    assert 25 < chi_squared < 110  # 59 degrees of freedom: one in 100,000 lies above; far below it would be no hash


def test_a_larger_window_moves_keys_by_more() -> None:
    places = [[spread_ms(str(number), seconds) for number in range(1_000)] for seconds in (1, 60, 3_600)]
    assert all(max(less) < max(more) for less, more in pairwise(places))


def test_nanoseconds_are_exact_in_any_zone() -> None:
    moment = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
    assert ns(moment) == 1_772_366_400_123_456_000
    assert ns(moment.astimezone(timezone(timedelta(hours=5, minutes=45)))) == ns(moment)
    assert from_ns(ns(moment)) == moment.replace(microsecond=123_000)
    with pytest.raises(TypeError):
        ns(moment.replace(tzinfo=None))


@pytest.mark.parametrize(
    ("zone", "wall", "instant"),
    [
        ("Europe/Paris", "2027-03-28T01:59:59", "2027-03-28T00:59:59Z"),
        ("Europe/Paris", "2027-03-28T02:00:00", "2027-03-28T01:00:00Z"),
        ("Europe/Paris", "2027-03-28T02:30:00", "2027-03-28T01:00:00Z"),
        ("Europe/Paris", "2027-03-28T03:00:00", "2027-03-28T01:00:00Z"),
        ("Europe/Paris", "2027-10-31T01:59:59", "2027-10-30T23:59:59Z"),
        ("Europe/Paris", "2027-10-31T02:30:00", "2027-10-31T00:30:00Z"),
        ("Europe/Paris", "2027-10-31T03:00:00", "2027-10-31T02:00:00Z"),
        ("America/New_York", "2027-03-14T02:30:00", "2027-03-14T07:00:00Z"),
        ("America/New_York", "2027-11-07T01:30:00", "2027-11-07T05:30:00Z"),
        ("America/Santiago", "2027-09-05T00:00:00", "2027-09-05T04:00:00Z"),
        ("Australia/Lord_Howe", "2027-10-03T02:15:00", "2027-10-02T15:30:00Z"),
        ("Pacific/Apia", "2011-12-30T12:00:00", "2011-12-30T10:00:00Z"),
        ("Pacific/Apia", "2027-06-01T12:00:00", "2027-05-31T23:00:00Z"),
        ("Asia/Tokyo", "2027-03-28T02:30:00", "2027-03-27T17:30:00Z"),
    ],
)
def test_a_local_time_is_when_it_is_first_shown_or_the_end_of_its_gap(zone: str, wall: str, instant: str) -> None:
    assert format_instant(first_shown(datetime.fromisoformat(wall), time_zone(zone))) == instant
