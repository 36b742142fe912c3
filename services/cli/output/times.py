"""Instants and durations for people: in the reader's zone, or in UTC."""

from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from shared.domain.instants import first_shown

NANOSECONDS = 1_000_000_000
_DAYS_BACK = {"today": 0, "yesterday": 1}
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def read_wire(value: Any) -> datetime | None:
    """The instant of an API field: nanoseconds since the epoch, RFC 3339, or none (0, `""`, `null`)."""
    if not value:
        return None
    try:
        if isinstance(value, int):
            return datetime.fromtimestamp(value / NANOSECONDS, UTC)
        instant = datetime.fromisoformat(str(value))
    except (OverflowError, OSError, ValueError):
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def format_when(value: Any, *, utc: bool) -> str:
    """The instant of a field, to the second; a dash for none."""
    instant = read_wire(value)
    if instant is None:
        return "-"
    if utc:
        return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S}"


def format_ahead(value: Any, now: datetime, *, zone: str = "", utc: bool = False) -> str:
    """A coming instant in a zone (default: the reader's), in UTC, and as a distance from now."""
    instant = read_wire(value)
    if instant is None:
        return "-"
    there = instant.astimezone(UTC if utc else ZoneInfo(zone) if zone else None)
    clock = "%H:%M:%S" if instant.second else "%H:%M"
    words = [f"{there:%a %Y-%m-%d {clock}} {zone if zone and not utc else there.tzname()}"]
    if there.utcoffset():
        words.append(f"{instant.astimezone(UTC):{clock}} UTC")
    if instant > now:
        words.append(f"in {format_span((instant - now).total_seconds())}")
    return "  ".join(words)


def format_span(seconds: float) -> str:
    """A duration in two units: `3 d 4 h`, `5 min 3 s`."""
    parts: list[str] = []
    left = int(max(seconds, 0))
    for name, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or (name == "s" and not parts):
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def read_given(text: str, now: datetime) -> datetime:
    """A typed instant: RFC 3339, a time in the reader's zone, or `+10m`."""
    if text.startswith("+"):
        return now + read_span(text[1:])
    return read_local(datetime.fromisoformat(text))


def read_past(text: str, now: datetime) -> datetime:
    """A typed past instant: RFC 3339, a date or a time in the reader's zone, `today` or `yesterday` for its first
    moment, or `2h` for two hours ago."""
    if (days := _DAYS_BACK.get(text.lower())) is not None:
        return read_local(datetime.combine(now.astimezone().date() - timedelta(days=days), time()))
    if text[-1:] in UNITS:
        return now - read_span(text)
    return read_local(datetime.fromisoformat(text))


def read_local(moment: datetime) -> datetime:
    """The instant of a time with a zone, or else the first one at which this machine's clock shows it; if the clock
    skips it, the end of the gap. Raises `OverflowError` at the ends of the calendar."""
    return moment if moment.tzinfo else first_shown(moment, None)


def read_span(text: str) -> timedelta:
    """A typed duration: `90`, `90s`, `10m`, `2h`, `7d`."""
    number, unit = (text[:-1], text[-1:]) if text[-1:] in UNITS else (text, "s")
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is not a duration: use 90s, 10m, 2h or 7d")
    return timedelta(seconds=int(number) * UNITS[unit])
