"""Whether all is well, and why not."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from carillon.dead_letters import DeadLetter
from carillon.processes import Minute, Process
from carillon.push_jobs import StoredJob
from carillon.queues import Queue


class Sign(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that is wrong, and what to do about it. `severity` is `page` or `ticket`."""

    name: str
    severity: str
    sentence: str
    remedy: str
    since: datetime | None = None


class Unknown(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that could not be looked at, and why not."""

    what: str
    reason: str
    since: datetime | None = None


class OpenJobs(Struct, frozen=True, kw_only=True, rename="camel"):
    """The jobs that have not ended: how many are `open` by status, and those that run or wait."""

    open: Mapping[str, int] = {}
    running: tuple[StoredJob, ...] = ()
    waiting: tuple[StoredJob, ...] = ()


class ClockState(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many instants are pending, for how long the oldest has waited, and how many are due within an hour."""

    pending: int | None = None
    oldest_visible_seconds: float | None = None
    due_next_hour: int | None = None


class DeadLetterCount(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many dead letters there are, and the newest of them."""

    count: int | None = None
    newest: tuple[DeadLetter, ...] = ()


class Overview(Struct, frozen=True, kw_only=True, rename="camel"):
    """A deployment as it stood at `as_of`. `verdict` is `well`, `ailing` (for the `signs`) or `unknown` (what could not
    be looked at is in `unknown`)."""

    as_of: datetime
    verdict: str
    signs: tuple[Sign, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    jobs: OpenJobs = OpenJobs()
    clock: ClockState = ClockState()
    dead_letters: DeadLetterCount = DeadLetterCount()
    queues: tuple[Queue, ...] = ()
    processes: tuple[Process, ...] = ()
    minutes: tuple[Minute, ...] = ()
