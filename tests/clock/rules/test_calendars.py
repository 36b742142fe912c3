"""Recurrences around days of calendars: left out, shifted, and merged."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clock.rules.calendars import Calendar, Days, Shift, check_shift, plan, planned_after
from shared.clock.rules.callbacks import HttpCallback
from shared.clock.rules.following import next_occurrence, occurrences, replan
from shared.clock.rules.instants import due_instants, find_upcoming
from shared.clock.rules.recurrence import Cron, Every, Recurrence
from shared.clock.rules.schedules import Definition, Schedule
from shared.core.errors import Invalid
from shared.core.instants import wall_at
from shared.core.time_zones import time_zone

CALLBACK = HttpCallback(payload="1", url="https://example.com")
FRIDAY = datetime(2026, 12, 18, tzinfo=UTC)
DAILY = Cron("0 9 * * *")


def days(*dates: str, zone: str = "UTC") -> Days:
    return Days([calendar("holidays", *dates, zone=zone)])


def calendar(name: str, *dates: str, zone: str = "UTC") -> Calendar:
    return Calendar(id=name, namespace="ns", name=name, timezone=zone, dates=tuple(sorted(dates)), updated_at=FRIDAY)


def a_schedule(definition: Definition, at: datetime) -> Schedule:
    return Schedule(
        id="ns/k", namespace="ns", key="k", generation="g", digest="", definition=definition, created_at=at,
        accepted_at=at,
    )  # fmt: skip


def fires(recurrence: Recurrence, shift: Shift, excluded: Days, count: int, after: datetime = FRIDAY) -> list[str]:
    definition = Definition(callback=CALLBACK, recurrence=recurrence, exclude=("holidays",), shift=shift)
    return [f"{each:%m-%d %H:%M}" for each in islice(due_instants(definition, "k", after, days=excluded), count)]


@pytest.mark.parametrize(
    ("shift", "expected"),
    [
        (Shift.NONE, ["12-18 09:00", "12-21 09:00", "12-22 09:00"]),
        (Shift.NEXT, ["12-18 09:00", "12-21 09:00", "12-22 09:00"]),
        (Shift.PREVIOUS, ["12-18 09:00", "12-21 09:00", "12-22 09:00"]),
    ],
)
def test_a_shift_onto_another_instant_fires_once(shift: Shift, expected: list[str]) -> None:
    assert fires(DAILY, shift, days("2026-12-19", "2026-12-20"), 3) == expected


@pytest.mark.parametrize(
    ("shift", "expected"),
    [
        (Shift.NONE, ["12-28 09:00", "01-04 09:00"]),
        (Shift.NEXT, ["12-22 09:00", "12-28 09:00", "01-04 09:00"]),
        (Shift.PREVIOUS, ["12-19 09:00", "12-28 09:00", "01-04 09:00"]),
    ],
)
def test_a_weekly_instant_is_shifted_to_the_nearest_day(shift: Shift, expected: list[str]) -> None:
    excluded = days("2026-12-20", "2026-12-21")
    assert fires(Cron("0 9 * * MON"), shift, excluded, len(expected)) == expected


def test_a_schedule_made_between_an_instant_and_its_shift_still_fires() -> None:
    excluded = days("2026-12-21", "2026-12-22")
    noon = datetime(2026, 12, 21, 12, tzinfo=UTC)
    assert fires(Cron("0 9 * * MON"), Shift.NEXT, excluded, 2, after=noon) == ["12-23 09:00", "12-28 09:00"]


def test_a_shift_keeps_the_time_of_day_when_the_clocks_change() -> None:
    paris = Cron("0 9 * * SAT", "Europe/Paris")
    before = datetime(2026, 10, 20, tzinfo=UTC)
    shifted = fires(paris, Shift.NEXT, days("2026-10-24", zone="Europe/Paris"), 1, after=before)
    assert shifted == ["10-25 08:00"]  # 09:00 in winter


def test_a_shift_onto_a_day_of_25_hours_fires() -> None:
    weekly = Cron("30 23 * * SAT", "Europe/Berlin")
    excluded = days("2026-10-24", zone="Europe/Berlin")
    after = datetime(2026, 10, 23, tzinfo=UTC)
    assert fires(weekly, Shift.NEXT, excluded, 2, after) == ["10-25 22:30", "10-31 22:30"]
    definition = Definition(callback=CALLBACK, recurrence=weekly, exclude=("holidays",), shift=Shift.NEXT)
    made = occurrences(a_schedule(definition, after), excluded)
    assert replan(definition, "k", made[0], excluded) == made[0]


def test_an_instant_before_a_shifted_one_fires_first() -> None:
    """The first day, which is excluded, has only the later of its two instants."""
    starts_at = datetime(2026, 12, 19, 9, 30, tzinfo=UTC)
    twice = Cron("0 9,10 * * *", starts_at=starts_at)
    expected = ["12-20 09:00", "12-20 10:00", "12-21 09:00"]
    assert fires(twice, Shift.NEXT, days("2026-12-19"), 3) == expected


@pytest.mark.parametrize(
    ("shift", "line", "expected"),
    [
        (Shift.NEXT, "0 9,21 * * FRI", ["12-18 09:00", "12-18 21:00", "12-25 21:00", "12-26 09:00", "01-01 09:00"]),
        (Shift.PREVIOUS, "0 9,21 * * FRI", ["12-18 09:00", "12-18 21:00", "12-24 09:00", "12-25 21:00", "01-01 09:00"]),
        (Shift.PREVIOUS, "0 9,21 * * THU", ["12-23 21:00", "12-24 09:00", "12-31 09:00", "12-31 21:00"]),
    ],
)
def test_a_day_of_another_zone_shifts_only_some_instants_of_a_day(shift: Shift, line: str, expected: list[str]) -> None:
    """In this calendar's zone the 25th begins at 19:00 of the 24th."""
    excluded = days("2026-12-25", zone="Etc/GMT-5")
    assert fires(Cron(line), shift, excluded, len(expected)) == expected


def test_a_date_is_that_of_the_calendars_zone() -> None:
    excluded = days("2026-12-25", zone="Pacific/Auckland")
    assert excluded.find(datetime(2026, 12, 24, 12, tzinfo=UTC)) == "holidays"
    assert excluded.find(datetime(2026, 12, 25, 12, tzinfo=UTC)) == ""


def test_a_year_of_minutes_is_passed_over_day_by_day() -> None:
    first = date(2026, 12, 19)
    excluded = days(*(str(first + timedelta(days=n)) for n in range(1_000)))
    assert fires(Cron("* * * * *"), Shift.NONE, excluded, 1, after=FRIDAY + timedelta(hours=23, minutes=59)) == [
        "09-14 00:00"
    ]


def test_a_block_of_more_than_a_month_leaves_out() -> None:
    first = date(2026, 12, 21)
    excluded = days(*(str(first + timedelta(days=n)) for n in range(40)))
    assert plan(DAILY, Shift.NEXT, excluded, datetime(2026, 12, 21, 9, tzinfo=UTC)).at is None


def test_a_shift_is_for_whole_days_and_few_instants() -> None:
    check_shift(Every(86_400, FRIDAY), Shift.NEXT)
    check_shift(Every(60, FRIDAY), Shift.NONE)
    with pytest.raises(Invalid, match="whole days"):
        check_shift(Every(3_600, FRIDAY), Shift.NEXT)
    check_shift(Cron("*/5 * * * *"), Shift.NONE)
    check_shift(Cron("0,30 0-11 * * *"), Shift.NEXT)
    with pytest.raises(Invalid, match="at most 24 instants a day"):
        check_shift(Cron("*/30 0-12 * * 1"), Shift.NEXT)


LINES = st.sampled_from(
    [
        "0 9 * * *", "0 9,17 * * *", "30 8 * * 1", "0 0 * * 1-5", "0 12 1 * *", "0 9 * * 1,3", "30 23 * * 6",
        "15 0 * * 0", "0 6,18 * * 5", "0 */3 * * 2,6",
    ]
)  # fmt: skip
ZONES = st.sampled_from(["UTC", "Europe/Paris", "Pacific/Auckland", "America/Los_Angeles"])
DATES = st.sets(st.integers(0, 40).map(lambda n: str(date(2027, 3, 10) + timedelta(days=n))), min_size=1, max_size=12)


def by_hand(recurrence: Recurrence, shift: Shift, excluded: Days, end: datetime) -> Sequence[datetime]:
    """All instants from `planned_after`, one by one: each that is not left out, once, in order."""
    start = datetime(2027, 1, 1, tzinfo=UTC)
    found = set[datetime]()
    for planned in planned_after(recurrence, shift, excluded, start):
        if planned.raw > end + timedelta(days=40):
            break
        if planned.at is not None:
            found.add(planned.at)
    return sorted(at for at in found if datetime(2027, 3, 1, tzinfo=UTC) < at <= end)


@given(line=LINES, zone=ZONES, own=ZONES, dates=DATES, shift=st.sampled_from(Shift))
def test_a_series_fires_each_planned_instant_once(
    line: str, zone: str, own: str, dates: set[str], shift: Shift
) -> None:
    recurrence, excluded = Cron(line, own), days(*dates, zone=zone)
    definition = Definition(callback=CALLBACK, recurrence=recurrence, exclude=("holidays",), shift=shift)
    start, end = datetime(2027, 3, 1, tzinfo=UTC), datetime(2027, 5, 15, tzinfo=UTC)
    found = list[datetime]()
    [series] = occurrences(a_schedule(definition, start), excluded)
    while series.due <= end:
        found.append(series.due)
        assert not excluded.find(series.due)
        assert replan(definition, "k", series, excluded) == series
        for raw in series.raws:
            assert wall_at(raw, time_zone(own)).time() == wall_at(series.due, time_zone(own)).time() or shift
        following = next_occurrence(definition, "k", series, days=excluded)
        assert following is not None
        series = following
    assert found == by_hand(recurrence, shift, excluded, end)
    first = find_upcoming(definition, "k", start, excluded)
    assert first is not None and first.at == (found[0] if found else first.at)
