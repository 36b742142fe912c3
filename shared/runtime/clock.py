"""Where services get the time from, so that a test can set it.

Time here is for what people see (`created_at`, logs) and for instants that a caller gave. Durations inside a process
use the monotonic clock of the event loop.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


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
