"""Series whose calendars change: each raw instant fires once, unless the change finds its moment over."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clock.rules.calendars import Days, Shift, plan, planned_after
from shared.clock.rules.following import next_occurrence, occurrences, replan
from shared.clock.rules.occurrences import Occurrence
from shared.clock.rules.recurrence import Cron
from shared.clock.rules.schedules import Definition
from tests.clock.rules.test_calendars import CALLBACK, DATES, LINES, ZONES, a_schedule, days

MONDAY = datetime(2026, 12, 7, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


class Followed:
    """The document of a series as schedulers treat it, while its calendar changes. `fired` are its moments and their
    raw instants."""

    def __init__(self, recurrence: Cron, shift: Shift, excluded: Days, at: datetime) -> None:
        self.definition = Definition(callback=CALLBACK, recurrence=recurrence, exclude=("holidays",), shift=shift)
        self.fired: list[tuple[datetime, Sequence[datetime]]] = []
        self._days = excluded
        made = occurrences(a_schedule(self.definition, at), excluded)
        self.series: Occurrence | None = made[0] if made else None

    def run(self, until: datetime) -> None:
        while self.series is not None and self.series.due <= until:
            placed = replan(self.definition, "k", self.series, self._days)
            if placed is not None and placed.place == self.series.place:
                self.fired.append((placed.due, placed.raws or (placed.due,)))
                placed = next_occurrence(self.definition, "k", placed, days=self._days)
            self.series = placed

    def change(self, at: datetime, excluded: Days, *, followed: bool = True) -> None:
        """`followed`: a scheduler looks at the series before it is due."""
        self.run(at)
        excluded.changed_at = at
        self._days = excluded
        if followed and self.series is not None:
            self.series = replan(self.definition, "k", self.series, excluded) or self.series

    def moments(self, since: datetime) -> list[str]:
        return [f"{due:%m-%d %H:%M}" for due, _ in self.fired if due >= since]


def at(text: str) -> datetime:
    return datetime.strptime(f"2026-{text}+0000", "%Y-%m-%d %H:%M%z")


@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize(
    ("line", "shift", "added", "removed", "expected"),
    [
        ("*/60 * * * *", Shift.NEXT, "12-07 10:01", "12-07 10:04", ["12-07 11:00", "12-07 12:00"]),
        ("0 9 * * 1", Shift.PREVIOUS, "12-06 12:00", "12-06 12:05", ["12-07 09:00"]),
        ("0 9 * * 1", Shift.NEXT, "12-06 12:00", "12-06 12:05", ["12-07 09:00"]),
        ("0 9 * * 1", Shift.NEXT, "12-07 08:00", "12-07 10:00", ["12-14 09:00"]),  # 9:00 is over
        ("0 9 * * 1", Shift.NEXT, "12-07 08:00", "12-08 10:00", ["12-08 09:00"]),
        ("0 9,17 * * *", Shift.NONE, "12-07 08:00", "12-07 10:00", ["12-07 17:00"]),
    ],
)
def test_a_day_that_is_removed_again(
    line: str, shift: Shift, added: str, removed: str, expected: list[str], *, followed: bool
) -> None:
    series = Followed(Cron(line), shift, days("2027-01-01"), at("12-01 00:00"))
    series.change(at(added), days("2026-12-07"))
    series.change(at(removed), days("2027-01-01"), followed=followed)
    series.run(MONDAY + 8 * DAY)
    assert series.moments(at(added))[: len(expected)] == expected


def test_a_day_that_is_removed_before_the_first_instant() -> None:
    starts_at = at("12-08 09:00")
    series = Followed(Cron("0 3,10 * * *", starts_at=starts_at), Shift.NEXT, days("2026-12-08"), at("12-01 00:00"))
    series.change(at("12-07 12:00"), days("2027-01-01"))
    series.run(at("12-09 12:00"))
    assert series.moments(starts_at) == ["12-08 10:00", "12-09 03:00", "12-09 10:00"]


def test_a_merged_instant_that_has_fired_is_not_shifted_again() -> None:
    series = Followed(Cron("0 1,16 * * 4,5"), Shift.NEXT, days("2026-12-10"), MONDAY)
    series.change(at("12-11 02:00"), days("2026-12-10", "2026-12-11"))
    series.run(at("12-15 00:00"))
    assert series.moments(MONDAY) == ["12-11 01:00", "12-12 16:00"]


def test_a_past_day_that_is_added_shifts_nothing_that_has_fired() -> None:
    line = Cron("0 9,17 * * *", ends_at=at("12-08 12:00"))
    series = Followed(line, Shift.NEXT, days("2027-01-01"), at("12-06 20:00"))
    series.change(at("12-07 18:00"), days("2026-12-07"))
    series.run(at("12-15 00:00"))
    assert series.moments(MONDAY) == ["12-07 09:00", "12-07 17:00", "12-08 09:00"]


def test_an_instant_before_the_request_is_not_brought_back_by_a_later_change() -> None:
    series = Followed(Cron("0 9 * * 1"), Shift.NEXT, days("2027-01-01"), at("12-07 12:00"))
    series.change(at("12-07 13:00"), days("2026-12-07"))
    series.run(at("12-15 00:00"))
    assert series.moments(MONDAY) == ["12-14 09:00"]


@pytest.mark.parametrize("shift", Shift)
def test_a_moment_that_was_fired_early_does_not_come_again(shift: Shift) -> None:
    series = Followed(Cron("0 9 * * *"), shift, days("2027-01-01"), MONDAY)
    series.run(at("12-08 09:00"))
    changed = days("2026-12-09") if shift is Shift.PREVIOUS else days("2026-12-07", "2027-01-01")
    changed.changed_at = at("12-08 08:59")
    assert series.series is not None
    moved = replan(series.definition, "k", series.series, changed)
    assert moved is not None and moved.due > at("12-08 09:00")


CHANGES = st.lists(st.tuples(st.integers(0, 24 * 50), DATES, ZONES, st.booleans()), max_size=6)


@given(line=LINES, own=ZONES, shift=st.sampled_from(Shift), changes=CHANGES)
def test_each_raw_instant_fires_once(
    line: str, own: str, shift: Shift, changes: list[tuple[int, set[str], str, bool]]
) -> None:
    """`owed` are the raw instants whose moments lay ahead at each change."""
    start, end = datetime(2027, 3, 1, tzinfo=UTC), datetime(2027, 7, 1, tzinfo=UTC)
    recurrence, excluded = Cron(line, own), days("2027-12-01")
    raws = {each.raw for each in takewhile(lambda each: each.raw < end, planned_after(recurrence, shift, None, start))}
    series, owed = Followed(recurrence, shift, excluded, start), raws
    for hours, dates, zone, followed in sorted(changes, key=lambda change: change[0]):
        changed_at, excluded = start + timedelta(hours=hours), days(*dates, zone=zone)
        series.change(changed_at, excluded, followed=followed)
        owed = {raw for raw in raws if raw in owed or raw > changed_at}
        owed = {raw for raw in owed if (plan(recurrence, shift, excluded, raw).at or start) > changed_at}
        # Those that have fired count as kept.
        owed |= set(chain.from_iterable(raws for _, raws in series.fired))
    series.run(end + 40 * DAY)
    fired = list(chain.from_iterable(raws for _, raws in series.fired))
    assert len(fired) == len(set(fired))
    assert owed <= set(fired)
    assert [due for due, _ in series.fired] == sorted({due for due, _ in series.fired})
