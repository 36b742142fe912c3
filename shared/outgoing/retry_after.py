"""Retry-After (RFC 9110, 10.2.3): how long a server asks to be left alone."""

import re
from datetime import UTC
from email.utils import parsedate_to_datetime

MOST_SECONDS = 86_400.0

_SECONDS = re.compile(r"[0-9]+")
_MOST_CHARACTERS = 64  # a date has 29; the limit bounds the time of parsing


def retry_after_seconds(value: str | None, date: str | None, now: int) -> float | None:
    """Seconds from now, 0 to a day, or `None` for a missing or unreadable header.

    `date` is the answer's own Date header. A time is read by the clock of the server that wrote it, or by `now` (epoch
    seconds) if that header is missing.
    """
    if value is None:
        return None
    text = value.strip()[:_MOST_CHARACTERS]
    if _SECONDS.fullmatch(text):
        return min(float(text), MOST_SECONDS)
    until = _instant(text)
    if until is None:
        return None
    since = _instant((date or "")[:_MOST_CHARACTERS])
    return min(max(until - (now if since is None else since), 0.0), MOST_SECONDS)


def _instant(text: str) -> float | None:
    try:
        read = parsedate_to_datetime(text)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
