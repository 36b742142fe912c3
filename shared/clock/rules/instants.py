"""The instants of a definition: offsets from an anchor, the delay within a window, and excluded days."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice, takewhile

import msgspec
from msgspec import Struct

from shared.clock.rules.calendars import Days, Shift, planned_after
from shared.clock.rules.occurrences import Passed
from shared.clock.rules.schedules import Definition
from shared.core.errors import Invalid
from shared.core.instants import EPOCH, LATEST, MILLISECOND, format_instant, spread_ms

_OFFSET = re.compile(r"([+-]?)(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)
_UNIT_MS = (86_400_000, 3_600_000, 60_000, 1_000)
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
    return timedelta(milliseconds=spread_ms(key, definition.window_seconds))


class Upcoming(Struct, frozen=True):
    """The next moment of a recurrence, without its delay, and the raw instants that fire then."""

    at: datetime
    raws: tuple[datetime, ...]


def find_upcoming(
    definition: Definition, key: str, after: datetime, days: Days | None = None, passed: Passed | None = None
) -> Upcoming | None:
    return next(moments_after(definition, key, after, days, passed), None)


def moments_after(
    definition: Definition, key: str, after: datetime, days: Days | None = None, passed: Passed | None = None
) -> Iterator[Upcoming]:
    """The moments after `after` at which a recurrence fires. `days`: the excluded days; `None` if there are no
    calendars."""
    if definition.recurrence is None:
        return
    after -= spread(definition, key)
    shift = definition.shift
    waiting: dict[datetime, list[datetime]] = {}
    at = until = EPOCH
    later = frozenset(passed.later if passed else ())
    for each in planned_after(definition.recurrence, shift, days, settled_until(shift, after, days, passed)):
        if each.at is not None and each.at > after and each.raw not in later:
            waiting.setdefault(each.at, []).append(each.raw)
        while waiting:
            if at != (at := min(waiting)):
                until = days.across_block(at, +1) if days is not None and shift is Shift.PREVIOUS else at
            # A later raw instant may be shifted to an earlier moment, up to here.
            if each.raw < until:
                break
            yield Upcoming(at, tuple(waiting.pop(at)))
    for at in sorted(waiting):
        yield Upcoming(at, tuple(waiting[at]))


def settled_until(shift: Shift, after: datetime, days: Days | None, passed: Passed | None = None) -> datetime:
    """Raw instants up to here do not fire after `after`: they have fired, or are not shifted that far."""
    earliest = days.across_block(after, -1) if days is not None and shift is Shift.NEXT else after
    return max(earliest, passed.raw) if passed else earliest


def due_instants(
    definition: Definition,
    key: str,
    after: datetime,
    days: Days | None = None,
    *,
    runs: int = 0,
    passed: Passed | None = None,
) -> Iterator[datetime]:
    """The instants that follow `after`, with their delay; a recurrence has had `runs` already."""
    delay = spread(definition, key)
    if definition.recurrence is None:
        yield from (instant + delay for instant in definition.instants if instant + delay > after)
        return
    left = None if definition.max_occurrences is None else max(0, definition.max_occurrences - runs)
    yield from (each.at + delay for each in islice(moments_after(definition, key, after, days, passed), left))


def instants_between(
    definition: Definition, key: str, since: datetime, until: datetime, days: Days | None
) -> Iterator[datetime]:
    """The instants from `since` until `until`, with their delay, however often the recurrence may fire."""
    unbounded = msgspec.structs.replace(definition, max_occurrences=None)
    return takewhile(lambda due: due <= until, due_instants(unbounded, key, since - MILLISECOND, days))


def offset_due(definition: Definition, key: str, offset_ms: int) -> datetime | None:
    """The instant at an offset; `None` if the definition does not have it."""
    if definition.anchor is None or offset_ms not in definition.offsets_ms:
        return None
    return definition.anchor + timedelta(milliseconds=offset_ms) + spread(definition, key)


def last_due(definition: Definition, key: str) -> datetime | None:
    return definition.instants[-1] + spread(definition, key) if definition.instants else None
