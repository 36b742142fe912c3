"""When a call is attempted again, and how long to wait before: data and pure functions."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

RETRIED = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
RETRIED_FOR_FILES = RETRIED | {HTTPStatus.INTERNAL_SERVER_ERROR}
"""S3 asks to be asked again after its `InternalError`, and a file that was stored all the same does no harm."""

FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 10.0
LONGEST_RETRY_AFTER_SECONDS = 60.0
"""A server that asks for a longer pause gets no further attempt of this call: its caller knows better what to do."""

_SECONDS = re.compile(r"[0-9]{1,9}")


def delay_seconds(attempt: int, rand: float, retry_after: float | None = None) -> float:
    """The pause after the given attempt (1 is the first): a share `rand` (0 to 1) of a bound that doubles, and before
    it what the server asked for."""
    bound = min(FIRST_DELAY_SECONDS * 2.0 ** min(attempt - 1, 30), LONGEST_DELAY_SECONDS)
    return (retry_after or 0.0) + rand * bound


def retry_after_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """The seconds that `Retry-After` asks for (RFC 9110, 10.2.3), or `None`; a date counts from the answer's own
    `Date`, by the server's clock, or else from `now`."""
    text = headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    until = _instant(text)
    if until is None:
        return None
    return max((until - (_instant(headers.get("Date", "")) or now)).total_seconds(), 0.0)


def _instant(text: str) -> datetime | None:
    try:
        read = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)
