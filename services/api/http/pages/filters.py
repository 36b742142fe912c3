"""How values are written on a page: numbers, times, spans and JSON. An unknown value is a dash."""

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup, escape

from shared.domain.audience.zones import REST
from shared.domain.jobs.words import per_unit

UNKNOWN = "\N{EN DASH}"
_OFFSET = re.compile(r"([+-])(\d\d)(\d\d)")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SIZES = ("B", "kB", "MB", "GB", "TB")
_SCALES = ((10**9, " G"), (10**6, " M"), (10**3, " k"))
_MOST_SECONDS = 253_402_300_799  # of the year 9999: what is more counts nanoseconds


def number(value: Any) -> str:
    """`1234567` as `1,234,567`."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def compact(value: float | None) -> str:
    """`1234567` as `1.23 M`: three digits at most."""
    if value is None:
        return UNKNOWN
    for least, unit in _SCALES:
        if abs(value) >= least:
            return f"{value / least:.3g}{unit}"
    return f"{value:.3g}"


def rate(per_second: float | None) -> str:
    """`12` as `12 a second`, `0.0457` as `2.74 a minute`."""
    if per_second is None:
        return UNKNOWN
    count, unit = per_unit(per_second)
    return f"{compact(count)} a {unit}"


def percent(part: float, whole: float) -> str:
    """A share in per cent. Only zero is written as 0 %, and only the whole as 100 %."""
    if not whole:
        return UNKNOWN
    share = 100 * part / whole
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.3g} %"


def size(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    for unit in _SIZES:
        if abs(value) < 1_000 or unit == _SIZES[-1]:
            return f"{value:.3g} {unit}"
        value /= 1_000
    return UNKNOWN


def span(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms" if seconds else "0 s"
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    left, parts = int(seconds), list[str]()
    for unit_seconds, unit in _UNITS:
        if left >= unit_seconds or parts:
            parts.append(f"{left // unit_seconds} {unit}")
            left %= unit_seconds
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0 ")) or "0 s"


def read_time(value: Any) -> datetime | None:
    """An instant of the API: RFC 3339, or nanoseconds as in Marathon's fields. `None` for no instant, and for one
    outside the calendar, because callers choose some of them."""
    if not value:
        return None
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value / 1e9 if abs(value) > _MOST_SECONDS else value, UTC)
        return datetime.fromisoformat(str(value)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def known_time(value: Any) -> datetime:
    """As `read_time`, for an instant that the API always gives."""
    at = read_time(value)
    assert at is not None
    return at


def instant(value: Any, shape: str = "short") -> Markup:
    """An instant in UTC. A script converts it to the reader's zone; hovering shows the exact one. `shape` is `short`
    (with the date unless it is today), `time`, `full`, or `ago` (the distance from now)."""
    at = read_time(value)
    if at is None:
        return Markup('<span class="none">{}</span>').format(UNKNOWN)
    exact = f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1_000:03} UTC"
    text = {"time": f"{at:%H:%M:%S}", "full": f"{at:%Y-%m-%d %H:%M:%S} UTC"}.get(shape, f"{at:%Y-%m-%d %H:%M}")
    return Markup('<time datetime="{}" title="{}" data-shape="{}">{}</time>').format(
        at.isoformat().replace("+00:00", "Z"), exact, shape, text
    )


def zone_name(zone: str) -> str:
    """The name of a zone: `UTC+05:45` for `+0545`. A value that is no offset stays as it is."""
    offset = _OFFSET.fullmatch(zone)
    if offset is None:
        return "no zone" if zone == REST else zone
    sign = offset[1].replace("-", "\N{MINUS SIGN}")
    return f"UTC{sign}{offset[2]}:{offset[3]}"


def things(count: int, thing: str) -> str:
    """A number with its noun, as in "1 event" and "1,200 events"."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def full_stop(text: str) -> str:
    """A sentence with a full stop, unless it has an end already."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def pretty(value: Any) -> str:
    """JSON with line breaks. Text that contains JSON is shown as that JSON; deeply nested JSON stays as it is."""
    try:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()  # a `Raw` as it came
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        return str(value)


def exactly(text: str) -> str:
    """The `pattern` of a field that accepts only this text."""
    return "".join(each if each.isascii() and each.isalnum() else f"\\u{{{ord(each):x}}}" for each in text)


def query_of(**given: Any) -> str:
    """A query of the parameters that have a value; `""` if none has."""
    left = {name: value for name, value in given.items() if value not in (None, "")}
    return f"?{urlencode(left)}" if left else ""


def with_query(given: dict[str, Any], **changes: Any) -> Markup:
    """A query with these parameters, some changed; those without a value are left out."""
    return escape(query_of(**given | changes) or "?")
