"""Instants: reading, writing, counting in milliseconds and spreading over a window.

An instant is an aware datetime in UTC of whole milliseconds, as MongoDB stores it and an occurrence's id contains it. A
finer instant is rounded up at its entry, so that nothing can fire early.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import blake2b

from shared.core.errors import Invalid

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
"""The last valid instant: later ones are refused, and recurrences end there."""

_DAY, _SECOND = timedelta(days=1), timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)
_MICROSECOND = timedelta(microseconds=1)
_EXAMPLE = "as in 2026-12-24T14:00:00Z"
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
    r"(?:([Zz])|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9]))?)?"
)


def read_instant(text: str, *, field: str) -> datetime:
    """The instant of a timestamp of RFC 3339; ISO 8601's missing seconds and `+01` are accepted too."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise Invalid(f"a timestamp is a date, a time and a zone, {_EXAMPLE}", field=field, value=text)
    date, minute, second, fraction, utc, sign, hours, minutes = match.groups()
    if utc is None and sign is None:
        raise Invalid(f"a timestamp needs a zone, {_EXAMPLE}", field=field, value=text)
    if not 1969 <= int(date[:4]) <= 2201:  # a year more on both sides, because the zone counts below
        raise _out_of_range(text, field)
    try:
        wall = datetime.fromisoformat(f"{date}T{minute}:{second or '00'}Z")
    except ValueError:
        raise Invalid(f"there is no such date or time; a timestamp is {_EXAMPLE}", field=field, value=text) from None
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    nanoseconds = int((fraction or "0").ljust(9, "0"))
    instant = wall + (offset if sign == "-" else -offset) - (-nanoseconds // 1_000_000) * MILLISECOND
    if not EPOCH <= instant <= LATEST:
        raise _out_of_range(text, field)
    return instant


def read_wall_clock(text: str, *, field: str) -> datetime:
    """A time on clocks of any zone, as if they showed UTC."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None or match[5] or match[6]:
        reason = "a localized start is a date and a time without `Z` or an offset, as in 2026-12-24T14:00:00"
        raise Invalid(reason, field=field, value=text)
    return read_instant(f"{text}Z", field=field)


def first_shown(wall: datetime, zone: tzinfo | None) -> datetime:
    """The first time when clocks of the zone (`None`: this machine's) show a local time; if they skip it, the end of
    the gap."""
    as_utc = wall.replace(tzinfo=UTC)
    offsets = {offset_at(as_utc - _DAY, zone), offset_at(as_utc + _DAY, zone)}
    read = sorted(as_utc - offset for offset in offsets)
    for instant in read:
        if wall_at(instant, zone) == wall:
            return instant
    gap_end = find_change(zone, read[0], read[-1])
    assert gap_end is not None  # it is between the two because a skipped time has two offsets
    return gap_end


def wall_at(instant: datetime, zone: tzinfo | None) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def offset_at(instant: datetime, zone: tzinfo | None) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None  # a zone of the IANA database has one for every instant
    return offset


def find_change(zone: tzinfo | None, start: datetime, end: datetime) -> datetime | None:
    """The first instant up to `end`, by the second, with another offset from UTC than `start`.

    They are at most a day apart; no zone since 1970 changed its offset twice within a week.
    """
    offset = offset_at(start, zone)
    if offset_at(end, zone) == offset:
        return None
    same, changed = 0, (end - start) // _SECOND
    while changed - same > 1:
        middle = (same + changed) // 2
        if offset_at(start + middle * _SECOND, zone) == offset:
            same = middle
        else:
            changed = middle
    return start + changed * _SECOND


def format_instant(instant: datetime) -> str:
    """The instant as RFC 3339 in UTC, with milliseconds if there are some."""
    utc = instant.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds" if utc.microsecond >= 1_000 else "seconds").replace("+00:00", "Z")


def format_maybe(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)


def ms(instant: datetime) -> int:
    """Milliseconds since 1970, rounded down."""
    return (instant - EPOCH) // MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def ceil_ms(instant: datetime) -> int:
    """Milliseconds since 1970, rounded up."""
    return -((EPOCH - instant) // MILLISECOND)


def ns(instant: datetime) -> int:
    """Nanoseconds since 1970, without floats, for a job, a mail or an event of Marathon's."""
    return (instant - EPOCH) // _MICROSECOND * 1_000


def from_ns(nanoseconds: int) -> datetime:
    """The instant at this number of nanoseconds since 1970, rounded down to a millisecond."""
    return from_ms(nanoseconds // 1_000_000)


def spread_ms(key: str, window_seconds: float) -> int:
    """The key's own place in a window: milliseconds from 0 up to the window's length, the same in every process."""
    window = round(window_seconds * 1_000)
    if window <= 1:
        return 0
    return int.from_bytes(blake2b(key.encode(), digest_size=8, person=b"window").digest()) % window


def _out_of_range(text: str, field: str) -> Invalid:
    return Invalid("a timestamp lies in the years 1970 to 2200", field=field, value=text)
