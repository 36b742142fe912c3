"""The instants of a schedule: which of them lie ahead, and the occurrences that are stored for them."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import takewhile

import msgspec

from shared.clock.rules.calendars import Days, Planned, Shift, planned_after
from shared.clock.rules.occurrences import Occurrence, at_offset, once, series
from shared.clock.rules.schedules import Definition, Schedule
from shared.core.errors import Invalid
from shared.core.instants import EPOCH, LATEST, format_instant, spread_ms

_OFFSET = re.compile(r"([+-]?)(?:(\d{1,4})d)?(?:(\d{1,5})h)?(?:(\d{1,7})m)?(?:(\d{1,9})s)?", re.ASCII)
_UNIT_MS = (86_400_000, 3_600_000, 60_000, 1_000)
_MILLISECOND = timedelta(milliseconds=1)
LONGEST_OFFSET_MS = 3_650 * _UNIT_MS[0]


def read_offset(text: str, *, field: str) -> int:
    """The milliseconds of an offset such as `-90m` or `+1h30m`."""
    found = _OFFSET.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        reason = "an offset is days, hours, minutes and seconds, with or without a sign: -90m, +1h30m or 0s"
        raise Invalid(reason, field=field, value=text)
    sign, *numbers = found.groups()
    offset = sum(int(number or 0) * unit for number, unit in zip(numbers, _UNIT_MS, strict=True))
    if offset > LONGEST_OFFSET_MS:
        raise Invalid("an offset must be at most 3,650 days", field=field, value=text)
    return -offset if sign == "-" else offset


def show_offset(offset_ms: int) -> str:
    """The offset in its largest whole unit."""
    unit = next(unit for unit in _UNIT_MS if offset_ms % unit == 0 and (offset_ms or unit == _UNIT_MS[-1]))
    return f"{'+' if offset_ms > 0 else ''}{offset_ms // unit}{'dhms'[_UNIT_MS.index(unit)]}"


def with_anchor(definition: Definition, anchor: datetime) -> Definition:
    """The definition at this anchor. Raises `Invalid` if an offset leads out of the range of instants."""
    try:
        instants = tuple(anchor + timedelta(milliseconds=offset) for offset in definition.offsets_ms)
    except OverflowError:
        instants = ()
    if not instants or instants[0] < EPOCH or instants[-1] > LATEST:
        rule = "an offset from this anchor lies before 1970 or after 2200"
        raise Invalid(rule, field="anchor", value=format_instant(anchor))
    return msgspec.structs.replace(definition, anchor=anchor, instants=instants)


def spread(definition: Definition, key: str) -> timedelta:
    """The delay of the key's instants within their window."""
    return (
        timedelta(milliseconds=spread_ms(key, definition.window_seconds)) if definition.window_seconds else timedelta()
    )


def split_by_now(definition: Definition, now: datetime) -> tuple[list[datetime], list[datetime]]:
    """A list's future instants, and its past ones, which do not fire."""
    ahead = [instant for instant in definition.instants if instant > now]
    return ahead, list(definition.instants[: len(definition.instants) - len(ahead)])


def find_planned(
    definition: Definition, key: str, after: datetime, days: Days | None = None, *, raw_after: datetime | None = None
) -> Planned | None:
    """The first instant of a recurrence that fires after `after` and whose raw instant follows `raw_after`. `days` are
    those that the definition excludes, if any."""
    if definition.recurrence is None:
        return None
    after -= spread(definition, key)
    earliest = after if days is None or definition.shift is not Shift.NEXT else days.before_block(after)
    raw_after = earliest if raw_after is None else max(raw_after, earliest)
    planned = planned_after(definition.recurrence, definition.shift, days, raw_after)
    return next((each for each in planned if each.at is not None and each.at > after), None)


def due_instants(
    definition: Definition, key: str, after: datetime, runs: int = 0, days: Days | None = None
) -> Iterator[datetime]:
    """The instants that follow `after`, with their delay; a recurrence has had `runs` already."""
    delay = spread(definition, key)
    if definition.recurrence is None:
        yield from (instant + delay for instant in definition.instants if instant + delay > after)
        return
    found = find_planned(definition, key, after, days)
    while found is not None and (definition.max_occurrences is None or runs < definition.max_occurrences):
        assert found.at is not None
        yield found.at + delay
        runs += 1
        found = find_planned(definition, key, found.at + delay, days, raw_after=found.raw)


def instants_between(
    definition: Definition, key: str, since: datetime, until: datetime, days: Days | None
) -> Iterator[datetime]:
    """The instants from `since` until `until`, with their delay, however often the recurrence may fire."""
    unbounded = msgspec.structs.replace(definition, max_occurrences=None)
    return takewhile(lambda due: due <= until, due_instants(unbounded, key, since - _MILLISECOND, days=days))


def occurrences(schedule: Schedule, days: Days | None = None) -> list[Occurrence]:
    """The occurrences to insert for the schedule: one for each instant after its acceptance, or the series. Around an
    anchor, past ones are parked. `days` as in `find_planned`."""
    definition, accepted_at = schedule.definition, schedule.accepted_at
    if definition.recurrence is not None:
        first = find_planned(definition, schedule.key, accepted_at, days)
        if first is None:
            return []
        made = series(schedule.owner, schedule.generation, first.raw, accepted_at=accepted_at, size=schedule.size)
        return [at_planned(made, definition, schedule.key, first)]
    delay = spread(definition, schedule.key)
    owner, generation, size = schedule.owner, schedule.generation, schedule.size
    if definition.anchor is not None:
        return [
            at_offset(owner, generation, offset, due + delay, accepted_at=accepted_at, size=size)
            for offset, due in zip(definition.offsets_ms, definition.instants, strict=True)
        ]
    ahead, _ = split_by_now(definition, accepted_at)
    return [once(owner, generation, due + delay, accepted_at=accepted_at, size=size) for due in ahead]


def offset_due(definition: Definition, key: str, offset_ms: int) -> datetime | None:
    """The instant at an offset; `None` if the definition does not have it."""
    if definition.anchor is None or offset_ms not in definition.offsets_ms:
        return None
    return definition.anchor + timedelta(milliseconds=offset_ms) + spread(definition, key)


def last_due(definition: Definition, key: str) -> datetime | None:
    return definition.instants[-1] + spread(definition, key) if definition.instants else None


def next_occurrence(
    definition: Definition,
    key: str,
    occurrence: Occurrence,
    *,
    passed_over: datetime | None = None,
    days: Days | None = None,
) -> Occurrence | None:
    """A series' document at its next instant; `None` if the series has ended. Instants up to `passed_over` are skipped,
    unless `max_occurrences` counts them."""
    runs = occurrence.runs + 1
    if definition.max_occurrences is not None and runs >= definition.max_occurrences:
        return None
    after = occurrence.due
    if passed_over is not None and definition.max_occurrences is None:
        after = max(after, passed_over)
    found = find_planned(definition, key, after, days, raw_after=raw_of(definition, key, occurrence))
    if found is None:
        return None
    moved = at_planned(occurrence, definition, key, found)
    return msgspec.structs.replace(moved, token="", attempts=0, claims=0, begun=0, runs=runs)


def raw_of(definition: Definition, key: str, occurrence: Occurrence) -> datetime:
    """The raw instant of a series' document."""
    return occurrence.due - spread(definition, key) + timedelta(milliseconds=occurrence.offset_ms)


def replan(definition: Definition, key: str, occurrence: Occurrence, days: Days | None) -> Occurrence | None:
    """A series' document where the calendars put its raw instant now, or at a later instant; `None` if there is
    none."""
    raw = raw_of(definition, key, occurrence)
    found = find_planned(definition, key, occurrence.due - _MILLISECOND, days, raw_after=raw - _MILLISECOND)
    return None if found is None else at_planned(occurrence, definition, key, found)


def at_planned(occurrence: Occurrence, definition: Definition, key: str, planned: Planned) -> Occurrence:
    """A series' document at this instant."""
    assert planned.at is not None
    due = planned.at + spread(definition, key)
    offset_ms = (planned.raw - planned.at) // _MILLISECOND
    return msgspec.structs.replace(occurrence, due=due, fires_at=due, visible_at=due, offset_ms=offset_ms)
