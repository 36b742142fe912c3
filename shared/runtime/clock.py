"""The clock that gives services the time, so that a test can set it.

Time here is for what people see (`created_at`, logs) and for instants that a caller gave. Times that processes must
agree on, as leases and long silences, go by the database's clock: `shared.flow.time` carries it for code that asks
often, and `Store.now` reads it for code that asks seldom. Durations inside a process use the monotonic clock of the
event loop.

An instant is a `datetime`. A job, its events and its mails hold nanoseconds, as Marathon's requests and documents do:
what a user gave reads back as it was given. `shared.domain.instants` converts.
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
