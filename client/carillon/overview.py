"""Whether all is well, and why not."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from carillon.displays import Short
from carillon.processes import Minute, Process
from carillon.push_jobs import StoredJob
from carillon.queues import Queue


class Sign(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that is wrong: what it means, what exactly is `seen`, and what to do about it. `severity` is `page` or
    `ticket`."""

    name: str
    severity: str
    sentence: str
    seen: str = ""
    remedy: str
    since: datetime | None = None


class Attention(Struct, frozen=True, kw_only=True, rename="camel"):
    """Work that waits for a person, such as `dead-letters`: how much of it there is, and a sentence that says so."""

    kind: str
    count: int
    sentence: str


class Unknown(Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the overview that could not be read, why not, and since when the answering process has seen that."""

    what: str
    reason: str
    since: datetime | None = None


class OpenJobs(Struct, frozen=True, kw_only=True, rename="camel"):
    """The jobs that have something left to do: how many are `open` by their state, the newest that run, and those that
    start next."""

    open: Mapping[str, int] = {}
    running: tuple[StoredJob, ...] = ()
    waiting: tuple[StoredJob, ...] = ()
    paused: tuple[StoredJob, ...] = ()


class Overview(Short, frozen=True, kw_only=True, rename="camel"):
    """A deployment as it stood at `as_of`. `verdict` is `well`, `ailing` (for the `signs`, or because work needs
    `attention`) or `unknown` (what could not be read is in `unknown`). `partial` says that the caller has no role over
    all there is: then there are the jobs of their own apps alone."""

    as_of: datetime
    verdict: str
    signs: tuple[Sign, ...] = ()
    attention: tuple[Attention, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    partial: bool = False
    jobs: OpenJobs = OpenJobs()
    dead_letters: int = 0
    queues: tuple[Queue, ...] = ()
    processes: tuple[Process, ...] = ()
    minutes: tuple[Minute, ...] = ()
