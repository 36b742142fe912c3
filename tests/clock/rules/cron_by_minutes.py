"""Cron, read a second time and in the plainest way: go through real minutes and look at the clock on the wall.

It shares nothing with the code under test but the time-zone database. Slow, and right by being obvious.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from shared.core.time_zones import time_zone

MINUTE = timedelta(minutes=1)
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


class Reading:
    """The sets of a line's five fields."""

    def __init__(self, line: str) -> None:
        minute, hour, day, month, weekday = line.upper().split()
        self.minutes = members(minute, 0, 59)
        self.hours = members(hour, 0, 23)
        self.days = members(day, 1, 31)
        self.months = members(month, 1, 12, MONTHS)
        self.weekdays = {number % 7 for number in members(weekday, 0, 7, DAYS)}
        self.both_days = day[0] == "*" or weekday[0] == "*"
        self.fixed = minute[0] != "*" and hour[0] != "*"
        self.matches_day = lru_cache(self._matches_day)

    def matches(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and self.matches_day(wall.date())

    def _matches_day(self, day: date) -> bool:
        by_date = day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        fits = (by_date and by_weekday) if self.both_days else (by_date or by_weekday)
        return fits and day.month in self.months


def members(field: str, lowest: int, highest: int, names: tuple[str, ...] = ()) -> set[int]:
    found = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if first == "*":
            first, last = str(lowest), str(highest)
        start = number_of(first, names)
        stop = number_of(last or (str(highest) if step else first), names)
        found |= {number for number in range(start, stop + 1) if (number - start) % int(step or 1) == 0}
    return found


def number_of(word: str, names: tuple[str, ...]) -> int:
    return names.index(word) if word in names else int(word)


def firings(line: str, timezone: str, start: datetime, end: datetime) -> list[datetime]:
    """Every minute of UTC from `start` to `end`, both included, in which the line fires."""
    reading = Reading(line)
    if not reading.fixed:
        return [real for real, shown, _ in minutes(timezone, start, end) if reading.matches(shown)]
    return [
        real
        for real, shown, latest in minutes(timezone, start, end)
        if any(reading.matches(new) for new in walls_between(latest, shown))
    ]


def walls_between(latest: datetime, shown: datetime) -> Iterator[datetime]:
    """What the wall clock has reached for the first time: one minute, many after a gap, none of a repeat."""
    while latest < shown:
        latest += MINUTE
        yield latest


@lru_cache(maxsize=256)
def minutes(timezone: str, start: datetime, end: datetime) -> list[tuple[datetime, datetime, datetime]]:
    """Each real minute, what the wall clock shows in it, and the latest that it showed before."""
    zone = time_zone(timezone)
    real = start - timedelta(hours=27)  # clocks went back by less, so that the latest of these is the latest ever
    latest = wall(real, zone)
    found = []
    while real <= end:
        shown = wall(real, zone)
        if real >= start:
            found.append((real, shown, latest))
        latest = max(latest, shown)
        real += MINUTE
    return found


def wall(real: datetime, zone: ZoneInfo) -> datetime:
    return real.astimezone(zone).replace(tzinfo=None, fold=0)


@lru_cache
def changes(timezone: str, since: datetime, until: datetime) -> tuple[datetime, ...]:
    """The first minutes with another offset from UTC than the minute before."""
    zone = time_zone(timezone)
    found = []
    day = since
    while day < until:
        following = day + timedelta(days=1)
        if day.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            before = day.astimezone(zone).utcoffset()
            real = day
            while real.astimezone(zone).utcoffset() == before:
                real += MINUTE
            found.append(real)
        day = following
    return tuple(found)


def utc(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)  # type: ignore[arg-type,misc]
