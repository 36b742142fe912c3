"""The clock that gives services the time, so that a test can set it.

Use it for times that people see (`created_at`, logs) and for times that a caller gave. Times that processes must agree
on, such as leases, follow the database's clock: `shared.time` carries it for code that asks often, `Store.now`
reads it for code that asks seldom. Durations inside a process use the event loop's monotonic clock.

An instant is a `datetime`. A job, its events and its mails hold nanoseconds, as Marathon's requests and documents do,
so that a user reads back the value that was given. `shared.core.instants` converts.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The time in UTC, to the microsecond."""

    def now_ns(self) -> int: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def now_ns(self) -> int:
        return time.time_ns()
