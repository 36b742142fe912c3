"""Cron lines against an independent reading wherever clocks change, and intervals that never drift."""

import time
from calendar import isleap
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise, product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.clock.rules.recurrence import Cron, Every, Recurrence, check_cron, next_after
from shared.core.errors import Invalid
from shared.core.instants import LATEST, format_instant, read_instant
from tests.clock.made import next_instants
from tests.clock.rules.cron_by_minutes import changes, firings, utc

MILLISECOND = timedelta(milliseconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

# What is odd about each; the years in which its clocks change like that.
ZONES = {
    "Europe/Berlin": (2024, 2031),
    "America/New_York": (2024, 2031),
    "America/St_Johns": (2009, 2012),  # changed at 00:01, so that an evening came twice
    "America/Sao_Paulo": (2015, 2020),  # a gap at midnight
    "America/Santiago": (2024, 2031),  # a gap at midnight, and a fold back into the day before
    "America/Havana": (2024, 2031),  # midnight comes twice
    "America/Nuuk": (2023, 2031),  # changes in the evening
    "America/Caracas": (2007, 2017),  # half an hour back, half an hour forth, for good
    "Africa/Casablanca": (2024, 2031),  # back for Ramadan
    "Africa/Cairo": (2024, 2031),  # a gap at midnight, and a fold back into the day before
    "Antarctica/Troll": (2024, 2031),  # two hours
    "Asia/Beirut": (2024, 2031),
    "Asia/Gaza": (2024, 2031),
    "Asia/Kathmandu": (1985, 1987),  # a quarter of an hour, for good
    "Asia/Pyongyang": (2015, 2019),  # half an hour, at 23:30
    "Atlantic/Azores": (2024, 2031),
    "Australia/Adelaide": (2024, 2031),
    "Australia/Lord_Howe": (2024, 2031),  # half an hour, twice a year
    "Europe/Dublin": (2024, 2031),  # winter is the exception there
    "Pacific/Apia": (2010, 2013),  # 30 December 2011 did not come
    "Pacific/Chatham": (2024, 2031),  # changes at 02:45
}
CHANGES = {zone: changes(zone, utc(first, 1, 1), utc(last, 1, 1)) for zone, (first, last) in ZONES.items()}
LINES = (
    "* * * * *",
    "*/30 * * * *",
    "*/30 2 * * *",
    "45 * * * *",
    "10 */2 * * *",
    "*/15 0,3,23 * * *",
    "*/20 1 * * SUN",
    "30 2 * * *",
    "0 0 * * *",
    "5,15-45/10 0-3 * * *",
    "0-59/7 1,2,23 * * *",
    "15 0-23 * * *",
    "59 23 30 12 *",
)


def series(recurrence: Recurrence, start: datetime, end: datetime) -> list[datetime]:
    """All instants from `start` to `end`, both included."""
    found: list[datetime] = []
    instant = next_after(recurrence, start - MILLISECOND)
    while instant is not None and instant <= end:
        assert not found or instant > found[-1]
        found.append(instant)
        instant = next_after(recurrence, instant)
    return found


def numbers(lowest: int, highest: int) -> st.SearchStrategy[str]:
    """A part of a field that does not begin with a star."""
    number = st.integers(lowest, highest)
    spans = st.tuples(number, number).map(sorted).map(lambda span: f"{span[0]}-{span[1]}")
    return st.one_of(
        number.map(str),
        spans,
        st.builds("{}/{}".format, spans, st.integers(1, highest)),
        st.builds("{}/{}".format, number, st.integers(1, highest)),
    )


def fields(lowest: int, highest: int) -> st.SearchStrategy[str]:
    stars = st.one_of(st.just("*"), st.integers(1, highest).map("*/{}".format))
    lists = st.lists(numbers(lowest, highest), min_size=1, max_size=3).map(",".join)
    return st.one_of(stars, lists, st.builds("{},{}".format, stars, numbers(lowest, highest)))


nights = st.lists(st.sampled_from([0, 1, 2, 3, 4, 22, 23]).map(str), min_size=1).map(",".join)
hours = st.one_of(fields(0, 23), nights)
times = st.builds("{} {}".format, fields(0, 59), hours)
daily = times.map("{} * * *".format)
days = st.one_of(st.just("*"), fields(1, 28))
weekdays = st.one_of(st.just("*"), fields(0, 7), st.sampled_from(["MON-FRI", "sun,WED", "1-5/2", "7"]))
months = st.one_of(st.just("*"), st.sampled_from(["1-6", "*/2", "MAR,oct", "4,9,12"]))
lines = st.builds("{} {} {} {}".format, times, days, months, weekdays)
zones = st.sampled_from(sorted(ZONES))
turns = zones.flatmap(lambda zone: st.tuples(st.just(zone), st.sampled_from(CHANGES[zone])))


@pytest.mark.parametrize("zone", ZONES)
def test_each_zone_shows_a_gap_or_a_fold(zone: str) -> None:
    assert CHANGES[zone]


@pytest.mark.parametrize("zone", ZONES)
def test_a_line_fires_around_a_change_of_the_clocks_as_read_by_minutes(zone: str) -> None:
    for line, change in product(LINES, CHANGES[zone][:2]):
        start, end = change - 4 * HOUR, change + 26 * HOUR
        assert series(Cron(line, zone), start, end) == firings(line, zone, start, end), line


@given(turns, st.one_of(daily, lines))
@settings(max_examples=400, deadline=None)
def test_any_line_fires_around_any_change_as_read_by_minutes(turn: tuple[str, datetime], line: str) -> None:
    zone, change = turn
    start, end = change - 4 * HOUR, change + 26 * HOUR
    assert series(Cron(line, zone), start, end) == firings(line, zone, start, end)


@given(turns, daily, st.integers(-4 * 3_600_000, 4 * 3_600_000))
@settings(max_examples=1000, deadline=None)
def test_asked_at_any_moment_around_a_change(turn: tuple[str, datetime], line: str, offset: int) -> None:
    zone, change = turn
    start, end = change - 4 * HOUR, change + 26 * HOUR
    moment = change + offset * MILLISECOND
    expected = [instant for instant in firings(line, zone, start, end) if instant > moment]
    following = next_after(Cron(line, zone), moment)
    assert following == expected[0] if expected else following is None or following > end


@given(
    st.sampled_from(["UTC", "Asia/Kolkata", "Asia/Kathmandu", "Pacific/Kiritimati", *ZONES]),
    lines,
    st.datetimes(datetime(2024, 1, 1), datetime(2031, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
@settings(max_examples=60, deadline=None)
def test_any_line_fires_on_random_days_as_read_by_minutes(zone: str, line: str, moment: datetime) -> None:
    start = moment.replace(second=0, microsecond=0)
    end = start + timedelta(days=14)
    expected = [instant for instant in firings(line, zone, start, end) if instant > moment]
    found = next_instants(Cron(line, zone), moment, 40)
    assert [instant for instant in found if instant <= end] == expected[:40]


DST = [
    # a fixed line: a skipped time fires when the gap ends, several skipped ones together, a repeated one once
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
    ("0,20,40 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-29T01:20:00Z"]),
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
    ("45 1 * * *", "America/New_York", "2026-11-01T06:30:00Z", ["2026-11-02T06:45:00Z"]),  # asked within the fold
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", ["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"]),
    ("30 1,2 * * *", "Antarctica/Troll", "2026-03-29T00:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-29T23:30:00Z"]),
    ("0 9 * * *", "Pacific/Apia", "2011-12-29T20:00:00Z", ["2011-12-30T10:00:00Z", "2011-12-30T19:00:00Z"]),
    ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", ["2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"]),
    ("0 0 * * *", "America/Havana", "2025-11-01T12:00:00Z", ["2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z"]),
    # a line of elapsed time: what is skipped does not come, what is repeated comes twice
    ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", ["2026-03-30T00:00:00Z", "2026-03-30T00:30:00Z"]),
    ("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:10:00Z", ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"]),
    ("*/30 1 * * *", "America/New_York", "2026-11-01T05:15:00Z",
     ["2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:00:00Z"]),
    ("*/30 1 2 11 *", "America/New_York", "2200-11-02T05:30:00Z", ["2200-11-02T06:00:00Z", "2200-11-02T06:30:00Z"]),
    ("45 * * * *", "Australia/Lord_Howe", "2026-04-04T14:30:00Z",
     ["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z", "2026-04-04T16:15:00Z"]),
    ("*/15 3 * * *", "Australia/Lord_Howe", "2026-10-03T15:00:00Z", ["2026-10-03T16:00:00Z", "2026-10-03T16:15:00Z"]),
    ("*/30 0 * * FRI", "Africa/Cairo", "2026-04-23T12:00:00Z", ["2026-04-30T21:00:00Z", "2026-04-30T21:30:00Z"]),
]  # fmt: skip

RARE = [
    ("0 0 29 2 *", "2026-01-01T00:00:00Z", ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
    ("0 0 29 2 *", "2096-03-01T00:00:00Z", ["2104-02-29T00:00:00Z"]),
    ("0 0 31 2 1", "2026-01-31T00:00:00Z", ["2026-02-02T00:00:00Z", "2026-02-09T00:00:00Z"]),  # the Mondays
    ("0 0 13 * FRI", "2026-02-01T00:00:00Z", ["2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z"]),  # either
    ("0 0 */13 * FRI", "2026-02-01T00:00:00Z", ["2026-02-27T00:00:00Z", "2026-03-27T00:00:00Z"]),  # both
    ("0 12 L * *", "2028-02-01T00:00:00Z", ["2028-02-29T12:00:00Z", "2028-03-31T12:00:00Z"]),
    ("0 12 LW * *", "2026-01-01T00:00:00Z", ["2026-01-30T12:00:00Z", "2026-02-27T12:00:00Z"]),
    ("0 12 * * 5L", "2026-01-01T00:00:00Z", ["2026-01-30T12:00:00Z", "2026-02-27T12:00:00Z"]),
    ("0 12 * * tue#2", "2026-01-01T00:00:00Z", ["2026-01-13T12:00:00Z", "2026-02-10T12:00:00Z"]),
    ("*/30 0 * 2 MON#5", "2044-02-29T00:15:00Z", ["2044-02-29T00:30:00Z", "2072-02-29T00:00:00Z"]),
    ("0 0 * 2 MON#5", "2072-03-01T00:00:00Z", ["2112-02-29T00:00:00Z"]),
]


@pytest.mark.parametrize(("line", "zone", "after", "expected"), DST)
def test_the_rule_for_each_kind_of_line_and_change(line: str, zone: str, after: str, expected: list[str]) -> None:
    found = next_instants(Cron(line, zone), read_instant(after, field="after"), len(expected))
    assert [format_instant(instant) for instant in found] == expected


@pytest.mark.parametrize(("line", "after", "expected"), RARE)
def test_rare_days_are_found(line: str, after: str, expected: list[str]) -> None:
    found = next_instants(Cron(line), read_instant(after, field="after"), len(expected))
    assert [format_instant(instant) for instant in found] == expected


moments = st.datetimes(datetime(2024, 1, 1), datetime(2031, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
crons = st.builds(Cron, line=daily, timezone=zones)
everies = st.builds(Every, seconds=st.integers(1, 40 * 86_400), anchor=moments)
recurrences = st.one_of(crons, everies)


@given(recurrences, st.one_of(moments, turns.map(lambda turn: turn[1])), st.integers(0, 7_200_000_000))
@settings(max_examples=150, deadline=None)
def test_instants_only_go_forward(recurrence: Recurrence, start: datetime, microseconds: int) -> None:
    moment = start + timedelta(microseconds=microseconds)
    for instant in next_instants(recurrence, moment, 30):
        assert instant > moment
        assert instant.tzinfo is UTC
        assert instant.microsecond % 1_000 == 0
        moment = instant


@given(recurrences, moments, st.integers(0, 3 * 86_400_000_000), st.integers(-3_600_000, 86_400_000))
@settings(max_examples=150, deadline=None)
def test_bounds_only_leave_out(recurrence: Recurrence, starts_at: datetime, length: int, offset: int) -> None:
    ends_at = starts_at + timedelta(microseconds=length)
    bounded = msgspec.structs.replace(recurrence, starts_at=starts_at, ends_at=ends_at)
    asked = starts_at + offset * MILLISECOND
    unbounded = next_instants(recurrence, max(asked, starts_at - timedelta(microseconds=1)), 30)
    assert next_instants(bounded, asked, 30) == [instant for instant in unbounded if instant <= ends_at]


@pytest.mark.parametrize(
    "recurrence", [Cron("0 * * * *", "Europe/Berlin"), Cron("0 0-23 * * *"), Every(3_600, utc(2026, 1, 1))]
)
def test_both_bounds_belong_to_a_series(recurrence: Recurrence) -> None:
    noon = utc(2026, 7, 1, 12)
    bounded = msgspec.structs.replace(recurrence, starts_at=noon, ends_at=noon + 2 * HOUR)
    all_of_it = [noon, noon + HOUR, noon + 2 * HOUR]
    assert next_instants(bounded, utc(1970, 1, 1), 9) == all_of_it
    assert next_instants(bounded, noon - MILLISECOND, 2) == all_of_it[:2]
    assert next_instants(bounded, noon, 9) == all_of_it[1:]
    assert next_after(bounded, noon + 2 * HOUR) is None
    assert next_after(msgspec.structs.replace(bounded, ends_at=noon - MINUTE), utc(2026, 1, 1)) is None


def test_an_instant_just_before_the_bound_does_not_belong_to_it() -> None:
    anchor = utc(2026, 7, 1)
    for starts_at in (anchor + MILLISECOND, anchor + timedelta(microseconds=1)):
        assert next_after(Every(60, anchor, starts_at=starts_at), utc(1970, 1, 1)) == anchor + MINUTE
    assert next_after(Every(60, anchor, starts_at=anchor), utc(1970, 1, 1)) == anchor


@given(everies, moments)
def test_an_interval_never_drifts(recurrence: Every, moment: datetime) -> None:
    anchor, step = recurrence.anchor, timedelta(seconds=recurrence.seconds)
    following = next_after(recurrence, moment)
    assert following is not None
    late = timedelta(microseconds=-anchor.microsecond % 1_000)  # the anchor itself is rounded up
    assert (following - late - anchor) % step == timedelta(0)
    assert following >= anchor
    assert following > moment
    assert following - step <= moment or following - late == anchor


def test_a_day_of_elapsed_time_is_24_hours_though_the_clocks_change() -> None:
    anchor = datetime(2026, 3, 28, 13, tzinfo=timezone(HOUR))
    days = next_instants(Every(86_400, anchor), utc(2026, 1, 1), 400)
    assert days == [utc(2026, 3, 28, 12) + day * 24 * HOUR for day in range(400)]


def test_an_interval_with_a_fine_anchor_is_not_early() -> None:
    anchor = utc(2026, 1, 1) + timedelta(microseconds=1)
    assert next_instants(Every(1, anchor), utc(2025, 1, 1), 2) == [
        utc(2026, 1, 1) + MILLISECOND,
        utc(2026, 1, 1, 0, 0, 1) + MILLISECOND,
    ]


def test_nothing_goes_on_beyond_the_last_instant() -> None:
    for recurrence in (Cron("0 0 * * *"), Cron("*/5 * * * *", "Pacific/Apia"), Every(10, utc(2026, 1, 1))):
        assert len(next_instants(recurrence, LATEST - timedelta(days=2), 100_000)) > 1
        assert next_instants(recurrence, LATEST - timedelta(days=2), 100_000)[-1] <= LATEST
        assert next_after(recurrence, LATEST) is None
        assert next_after(recurrence, datetime.max.replace(tzinfo=UTC)) is None
    assert next_after(Every(10**30, utc(2026, 1, 1)), utc(2026, 1, 1)) is None


def test_a_moment_may_be_told_in_any_zone() -> None:
    moment = datetime(2026, 7, 1, 11, 59, tzinfo=timezone(2 * HOUR))
    assert next_after(Cron("0 12 * * *", "Europe/Berlin"), moment) == utc(2026, 7, 1, 10)
    assert next_after(Cron("0 0 1 1 *"), datetime.min.replace(tzinfo=UTC)) == utc(1970, 1, 1)


@pytest.mark.parametrize(
    ("stored", "recurrence"),
    [
        ('{"type":"cron","line":"0 9 * * *"}', Cron("0 9 * * *", "UTC")),
        ('{"type":"every","seconds":5,"anchor":"2026-01-01T00:00:00Z"}', Every(5, utc(2026, 1, 1))),
    ],
)
def test_what_is_stored_of_a_recurrence_is_read_in_every_release(stored: str, recurrence: Recurrence) -> None:
    read: Recurrence = msgspec.json.decode(stored, type=Cron | Every)
    assert read == recurrence
    assert (read.starts_at, read.ends_at) == (None, None)


@given(recurrences)
def test_a_recurrence_can_be_stored(recurrence: Recurrence) -> None:
    assert msgspec.json.decode(msgspec.json.encode(recurrence), type=Cron | Every) == recurrence


def test_the_rarest_day_comes_within_the_years_that_are_searched() -> None:
    """29 February on a Sunday: 2088, and then 2128."""
    after = datetime(2088, 2, 29, tzinfo=UTC)
    assert next_after(Cron("0 0 29 2 */7"), after) == datetime(2128, 2, 29, tzinfo=UTC)
    by_weekday: dict[int, list[int]] = {}
    for year in range(1970, 2201):
        if isleap(year):
            by_weekday.setdefault(date(year, 2, 29).weekday(), []).append(year)
    assert max(late - early for years in by_weekday.values() for early, late in pairwise(years)) == 40


@pytest.mark.alone
def test_lines_that_never_fire_are_told_quickly() -> None:
    """A thousand of them, each another line."""
    began = time.thread_time()
    for number in range(1_000):
        with pytest.raises(Invalid, match="never fires"):
            check_cron(f"{number % 60} {number // 60} */31 * 1#5", "UTC")
    assert time.thread_time() - began < 50.0
