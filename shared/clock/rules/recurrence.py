"""Recurrences: the instants of a cron line or a fixed interval.

A cron line has the meaning of Debian's cron, also when the clocks change:

- If its minute or hour begins with `*`, it follows elapsed time: it fires in every real minute whose local time
matches. A local time that the clocks skip does not come, one that they repeat comes twice. So `*/30 * * * *` fires
every half hour of real time, and `*/30 2 * * *` not at all on a day without a local hour 2.
- Otherwise it is fixed and follows the wall clock, once for each local time: a skipped one fires when the gap ends, a
repeated one the first time only. Several skipped ones fire together, as one occurrence.

cronsim parses the lines (names, ranges, steps, `L`, `LW`, `FRI#2`, `5L`, and the combination of the two day fields).
This module finds the instants, because cronsim's search omits or invents some if clocks change by half an hour or at
midnight.
"""

from bisect import bisect_left
from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final, assert_never
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from cronsim.cronsim import Field
from msgspec import Struct

from shared.core.errors import Invalid, suggest
from shared.core.instants import EPOCH, LATEST, ceil_ms, find_change, first_shown, from_ms, ms, offset_at, wall_at
from shared.core.time_zones import time_zone, zone_names

MAX_LINE_CHARACTERS = 200

_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# The name, the number of values, and the seconds of one, if all have the same.
_FIELDS = (("minute", 60, 60), ("hour", 24, 3_600), ("day", 31, 86_400), ("month", 12, 0), ("weekday", 7, 0))

_VALUES = (
    (Field.MINUTE, "minute", "0 to 59"),
    (Field.HOUR, "hour", "0 to 23"),
    (Field.DAY, "day", "1 to 31, or L for the last"),
    (Field.MONTH, "month", "1 to 12, or JAN to DEC"),
    (Field.DOW, "weekday", "0 to 7, or SUN to SAT"),
)
_MOST_WEEKS = 5
_ABBREVIATION_CHARACTERS = 5
_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_LAST_DAY: Final = LATEST.date() + _DAY  # the local date of the last instants, east of Greenwich
_BEFORE_FIRST = EPOCH - timedelta(milliseconds=1)
# 29 February comes on one weekday every 28 years, and around a year such as 2100, which has none, after 40.
_YEARS_BETWEEN = 40


class Cron(Struct, frozen=True, tag="cron"):
    """The instants of a cron line of five fields, in the local time of an IANA zone; both bounds are inclusive."""

    line: str
    timezone: str = "UTC"
    starts_at: datetime | None = None
    ends_at: datetime | None = None


class Every(Struct, frozen=True, tag="every"):
    """The instants `anchor` + n * `seconds` (at least 1), n from 0, by elapsed time; both bounds are inclusive."""

    seconds: int
    anchor: datetime
    starts_at: datetime | None = None
    ends_at: datetime | None = None


Recurrence = Cron | Every


def plain_line(line: str) -> str:
    """The line of five fields for a name such as `@daily`; any other line as it is."""
    return _NAMED.get(line.strip().lower(), line)


def check_cron(line: str, timezone: str) -> None:
    """Raise `Invalid`, which names `cron` or `timezone`, unless the line fires some day."""
    find_zone(timezone)
    if len(line) > MAX_LINE_CHARACTERS:
        raise Invalid(f"a cron line has at most {MAX_LINE_CHARACTERS} characters", field="cron")
    _check_steps(line)
    if not _fires(line, timezone):
        raise Invalid("this cron line never fires", field="cron", value=line)


def times_of_day(cron: Cron) -> int:
    """How often it fires on a day."""
    return _parse(cron.line).times_of_day


def next_after(recurrence: Recurrence, moment: datetime) -> datetime | None:
    """The first instant after `moment`, in UTC and whole milliseconds; `None` if none comes before the year 2201."""
    if recurrence.starts_at is not None:
        moment = max(moment, from_ms(ceil_ms(recurrence.starts_at) - 1))
    end = LATEST if recurrence.ends_at is None else min(LATEST, recurrence.ends_at)
    if moment >= end:
        return None
    match recurrence:
        case Cron(line, timezone):
            parsed = _parse(line)
            find_after = _elapsed_after if parsed.elapsed else _fixed_after
            instant = find_after(parsed, find_zone(timezone), max(moment, _BEFORE_FIRST).astimezone(UTC))
        case Every(seconds, anchor):
            instant = _every_after(seconds, ceil_ms(anchor), ms(moment), ms(end))
        case _:
            assert_never(recurrence)
    return instant if instant is not None and instant <= end else None


def _every_after(seconds: int, anchor: int, moment: int, end: int) -> datetime | None:
    """`anchor`, `moment` and `end` are milliseconds."""
    step = seconds * 1_000
    instant = anchor + max(0, (moment - anchor) // step + 1) * step
    return from_ms(instant) if instant <= end else None


class _Line:
    """The matches of a cron line, in local time without a zone."""

    def __init__(self, parsed: CronSim) -> None:
        self._minutes = sorted(parsed.minutes)
        self._hours = sorted(parsed.hours)
        self._months = sorted(parsed.months)
        self._fires_on = parsed.match_day
        self._days_by_kind: dict[tuple[int, int], list[int]] = {}
        self.times_of_day = len(self._hours) * len(self._minutes)
        self.elapsed = any(field.startswith("*") for field in parsed.parts[1:3])

    def at_or_after(self, wall: datetime) -> datetime | None:
        """The first match from `wall` on, which is a whole minute."""
        day = self._day(wall.date())
        if day == wall.date() and (later := self._time(wall.time())) is not None:
            return datetime.combine(day, later)
        if day == wall.date():
            day = self._day(day + _DAY)
        return None if day is None else datetime.combine(day, time(self._hours[0], self._minutes[0]))

    def _day(self, earliest: date) -> date | None:
        if earliest.month in self._months and self._fires_on(earliest):
            return earliest if earliest <= _LAST_DAY else None
        for year in range(earliest.year, min(earliest.year + _YEARS_BETWEEN, _LAST_DAY.year) + 1):
            begun = year == earliest.year
            for month in self._months[bisect_left(self._months, earliest.month) if begun else 0 :]:
                first = earliest.day if begun and month == earliest.month else 1
                days = self._days(year, month)
                if (at := bisect_left(days, first)) < len(days):
                    found = date(year, month, days[at])
                    return found if found <= _LAST_DAY else None
        return None

    def _days(self, year: int, month: int) -> list[int]:
        """The days of a month on which it fires. Its first weekday and its length make one of 28 kinds of months."""
        kind = monthrange(year, month)
        if kind not in self._days_by_kind:
            days = range(1, kind[1] + 1)
            self._days_by_kind[kind] = [day for day in days if self._fires_on(date(year, month, day))]
        return self._days_by_kind[kind]

    def _time(self, earliest: time) -> time | None:
        at = bisect_left(self._hours, earliest.hour)
        if at < len(self._hours) and self._hours[at] == earliest.hour:
            minute = bisect_left(self._minutes, earliest.minute)
            if minute < len(self._minutes):
                return time(earliest.hour, self._minutes[minute])
            at += 1
        return time(self._hours[at], self._minutes[0]) if at < len(self._hours) else None


def _fixed_after(line: _Line, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Ordered local times have ordered instants, though several may share one."""
    wall = line.at_or_after(_ceil_minute(wall_at(moment, zone)))
    while wall is not None:
        instant = first_shown(wall, zone)
        if instant > moment:
            return instant
        wall = line.at_or_after(wall + _MINUTE)
    return None


def _elapsed_after(line: _Line, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Go from stretch to stretch of one offset from UTC: within each, local time is UTC, shifted."""
    start = moment.replace(microsecond=0) + _SECOND
    while start <= LATEST:
        end = find_change(zone, start, start + _DAY)
        stop = end or start + _DAY
        offset = offset_at(start, zone)
        wall = line.at_or_after(_ceil_minute((start + offset).replace(tzinfo=None)))
        if wall is not None and (instant := wall.replace(tzinfo=UTC) - offset) < stop:
            return instant
        if end is None and wall is None:
            return None
        # An offset from UTC is less than a day, so the next match in UTC is at most a day earlier than `wall`.
        start = stop if end is not None or wall is None else max(stop, wall.replace(tzinfo=UTC) - _DAY)
    return None


def _check_steps(line: str) -> None:
    """Raise `Invalid` for a step beyond its field's range: `*/90` fires once an hour, and not every 90 minutes."""
    fields = line.split()
    for place, ((name, most, seconds), text) in enumerate(zip(_FIELDS, fields, strict=False)):
        for step in (part.partition("/")[2] for part in text.split(",")):
            if step.isdecimal() and int(step) > most:
                alone = text.startswith("*/") and {*fields[:place]} <= {"0"} and {*fields[place + 1 :]} <= {"*"}
                hint = f"; for every {step} {name}s use every: {int(step) * seconds}" if seconds and alone else ""
                a = "an" if name == "hour" else "a"
                raise Invalid(f"the step {step} exceeds the {most} of {a} {name} field{hint}", field="cron", value=line)


def _ceil_minute(wall: datetime) -> datetime:
    floor = wall.replace(second=0, microsecond=0)
    return floor if floor == wall else floor + _MINUTE


@lru_cache(maxsize=4_096)
def _fires(line: str, timezone: str) -> bool:
    return next_after(Cron(line, timezone), _BEFORE_FIRST) is not None


@lru_cache(maxsize=4_096)
def _parse(line: str) -> _Line:
    fields = line.split()
    if len(fields) != 5:
        raise Invalid("a cron line has five fields: minute hour day month weekday", field="cron", value=line)
    if not (line.isascii() and line.replace("\t", " ").isprintable()):
        raise Invalid("a cron line is one line of ASCII", field="cron", value=line)
    try:
        return _Line(CronSim(" ".join(map(_without_idle_steps, list(Field)[1:], fields)), EPOCH))
    except CronSimError as error:
        reasons = filter(None, map(_explain_field, _VALUES, line.upper().split()))
        reason = next(reasons, "this cron line never fires: no month that it names has such a day")
        raise Invalid(reason, field="cron", value=line) from error


def _explain_field(values: tuple[Field, str, str], text: str) -> str:
    field, name, rule = values
    for part in text.split(","):
        try:
            field.parse(part)
        except CronSimError:
            return _explain_part(field, name, rule, part)
    return ""


def _explain_part(field: Field, name: str, rule: str, part: str) -> str:
    span, slash, step = part.partition("/")
    span, hash_, nth = span.partition("#") if field is Field.DOW else (span, "", "")
    ends = span.split("-", maxsplit=1)
    for value in ends:
        if value in {"*", "L", "LW"} and len(ends) == 1:
            continue
        try:
            field.int(value.removesuffix("L") if field is Field.DOW else value)
        except CronSimError:
            return f"{value or repr(part)} is no {name}: {rule}"
    if slash and not (step.isdecimal() and int(step)):
        return f"{step or repr(part)} is no step: 1 or more"
    if hash_ and not (nth.isdecimal() and 1 <= int(nth) <= _MOST_WEEKS):
        return f"{nth or repr(part)} is no week of a month: # takes 1 to {_MOST_WEEKS}"
    return f"{span} is no range: it must not end before it begins" if len(ends) > 1 else f"{part} is no {name}: {rule}"


def _without_idle_steps(field: Field, text: str) -> str:
    """The field in upper case, with each range of one value without its step: cronsim reads `5-5/10` as `5/10`, which
    goes on to the field's end."""
    parts = text.upper().split(",")
    for index, part in enumerate(parts):
        span, step, _ = part.partition("/")
        if step and "-" in span and field.parse(part) and len(field.parse(span)) == 1:
            parts[index] = span
    return ",".join(parts)


def find_zone(name: str) -> ZoneInfo:
    """Raises `Invalid`, which names `timezone`, for a name that IANA does not have."""
    try:
        return time_zone(name)
    except KeyError:
        # The nearest name to PST is MST, and to UTC+3 it is UTC: other times of day.
        near = suggest(name, zone_names()) if len(name) > _ABBREVIATION_CHARACTERS else ""
        hint = near or "; IANA has names such as Europe/Paris and UTC, and Etc/GMT-3 for UTC+3"
        raise Invalid(f"unknown time zone{hint}", field="timezone", value=name) from None
