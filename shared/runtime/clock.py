"""Where services get the time from, so that a test can set it.

Time here is for what people see (`created_at`, logs) and for instants that a caller gave. Durations inside a process
use the monotonic clock of the event loop.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """The time of day."""

    def now(self) -> datetime:
        """This instant, in UTC, to the microsecond."""

    def now_ns(self) -> int:
        """This instant in nanoseconds since the epoch."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def now_ns(self) -> int:
        return time.time_ns()


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start_ns: int = 1_800_000_000_000_000_000) -> None:
        self._ns = start_ns

    def now(self) -> datetime:
        return EPOCH + timedelta(microseconds=self._ns // 1_000)

    def now_ns(self) -> int:
        return self._ns

    def advance(self, seconds: float) -> None:
        """Move on; never back. Raises `ValueError`."""
        if seconds < 0:
            raise ValueError("a clock does not go back")
        self._ns += round(seconds * 1e9)
