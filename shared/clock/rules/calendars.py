"""Calendars: days on which schedules do not fire.

A calendar is a set of dates in a zone. A recurrence does not fire on these dates: each such instant is dropped, or
shifted to the nearest day before or after that no calendar excludes, at the same time of day. If an instant is shifted
onto another one, the two fire once. So the *planned* instants of a recurrence follow from its *raw* ones.
"""

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from msgspec import Struct

from shared.clock.rules.recurrence import Cron, Every, Recurrence, next_after, times_of_day
from shared.core.errors import Invalid
from shared.core.instants import EPOCH, MILLISECOND, first_shown, wall_at
from shared.core.time_zones import time_zone

DATES = 1_000
EXCLUDES = 10
"""Maximum of calendars of a schedule."""
LONGEST_SHIFT = timedelta(days=31)
SHIFTED_A_DAY = 24
"""Maximum of instants a day with a shift, because the search for the next instant examines a month of them."""
_DAY = timedelta(days=1)
# An instant is shifted by steps of up to 25 hours, and an excluded day has at least 22: it meets one of these.
_PROBED = (timedelta(0), timedelta(hours=13), timedelta(hours=26))


class Shift(StrEnum):
    """The day to which an excluded instant is shifted."""

    NONE = ""  # it is left out
    NEXT = "next"
    PREVIOUS = "previous"


class Calendar(Struct, frozen=True, kw_only=True):
    """The dates are ISO texts, sorted."""

    id: str
    namespace: str
    name: str
    timezone: str
    dates: tuple[str, ...]
    updated_at: datetime


class Days:
    """The excluded days of some calendars."""

    def __init__(self, calendars: Sequence[Calendar]) -> None:
        self._calendars = [
            (each.name, time_zone(each.timezone), frozenset(map(date.fromisoformat, each.dates))) for each in calendars
        ]
        self.changed_at = max((each.updated_at for each in calendars), default=EPOCH)
        self._instants: dict[tuple[datetime, str], datetime | None] = {}

    def find(self, instant: datetime) -> str:
        """The name of a calendar that has the instant's date; `""` if none has."""
        return next((name for name, zone, dates in self._calendars if wall_at(instant, zone).date() in dates), "")

    def instant_of(self, wall: datetime, zone: ZoneInfo) -> datetime | None:
        """When clocks of the zone show this local time; `None` on an excluded day. Cached, because the instants of a
        block of days try the same local times."""
        if (wall, zone.key) not in self._instants:
            at = first_shown(wall, zone)
            self._instants[wall, zone.key] = None if self.find(at) else at
        return self._instants[wall, zone.key]

    def last_moment(self, instant: datetime) -> datetime:
        """The last moment of the excluded day on which the instant is."""
        shown = [(zone, wall_at(instant, zone), dates) for _, zone, dates in self._calendars]
        zone, wall = next((zone, wall) for zone, wall, dates in shown if wall.date() in dates)
        midnight = datetime.combine(wall.date() + _DAY, datetime.min.time())
        return first_shown(midnight, zone) - MILLISECOND

    def across_block(self, moment: datetime, direction: int) -> datetime:
        """The moment itself, or one across the excluded days right before it (`direction` -1) or after it (+1). A shift
        brings no instant from beyond there to the other side of `moment`."""
        across = moment
        while abs(across - moment) <= LONGEST_SHIFT and any(self.find(across + direction * part) for part in _PROBED):
            across += direction * _DAY
        return across


class Planned(Struct, frozen=True):
    """An instant of a recurrence, and when it fires instead: `at` is `None` if it is left out. `calendar` excludes
    it."""

    raw: datetime
    at: datetime | None
    calendar: str = ""


def check_shift(recurrence: Recurrence, shift: Shift) -> None:
    """Raise `Invalid` for an interval whose instants are at other times each day, and for too many instants a day."""
    if shift and isinstance(recurrence, Every) and timedelta(seconds=recurrence.seconds) % _DAY:
        raise Invalid("shift goes with cron, or with an every of whole days", field="shift", value=shift.value)
    if shift and isinstance(recurrence, Cron) and times_of_day(recurrence) > SHIFTED_A_DAY:
        rule = f"shift goes with at most {SHIFTED_A_DAY} instants a day: leave shift out, or fire less often"
        raise Invalid(rule, field="shift", value=shift.value)


def plan(recurrence: Recurrence, shift: Shift, days: Days, raw: datetime) -> Planned:
    calendar = days.find(raw)
    if not calendar:
        return Planned(raw, raw)
    if shift is Shift.NONE:
        return Planned(raw, None, calendar)
    zone = time_zone(recurrence.timezone if isinstance(recurrence, Cron) else "UTC")
    wall, step = wall_at(raw, zone), _DAY if shift is Shift.NEXT else -_DAY
    for number in range(1, LONGEST_SHIFT.days + 1):
        if (at := days.instant_of(wall + number * step, zone)) is not None:
            return Planned(raw, at, calendar)
    return Planned(raw, None, calendar)


def planned_after(recurrence: Recurrence, shift: Shift, days: Days | None, after: datetime) -> Iterator[Planned]:
    """The instants after the raw instant `after`, in the order of raw instants. For `Shift.NONE` the search jumps to
    the end of an excluded day."""
    raw = next_after(recurrence, after)
    while raw is not None:
        planned = Planned(raw, raw) if days is None else plan(recurrence, shift, days, raw)
        yield planned
        is_whole_day = days is not None and planned.at is None and shift is Shift.NONE
        raw = next_after(recurrence, days.last_moment(raw) if days is not None and is_whole_day else raw)
