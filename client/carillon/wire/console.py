"""Callers and their acts, running processes, and what needs attention."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

from carillon.wire import At, Short

Job = TypeVar("Job")
"""A job as the API shows it, or as a client reads it."""


class Actor(Struct, frozen=True, kw_only=True):
    """The caller: a `user` or a `token`, how they proved who they are (`token`, `proxy` or `session`), and from where.
    Or it was `system`, Carillon by itself: then `name` is the role of the process."""

    kind: str = ""
    namespace: str
    name: str
    way: str
    address: str


class ActedOn(Struct, frozen=True, kw_only=True, rename="camel"):
    """The thing that the act changed, its readable name if it is known, and its app or namespace."""

    kind: str
    id: str
    name: str = ""
    app_id: str
    namespace: str


class AuditRecord(Short, Generic[At], frozen=True, kw_only=True, rename="camel"):
    """An act. `outcome` is `begun`, `done`, `refused`, `failed`, or `unknown`: the process died, or a server was away.
    `status` is that of the answer, 0 until there is one; `via` the caller's program; `reason` what they gave.
    `requestId` is what the answer bore in `X-Request-Id`, `trace` the id of the request's trace, if it has one. `count`
    is how many things an act on many was done to. `before` and `after` have what it changed, by field, where it was
    done to an app, a template, a user or a token."""

    id: str
    at: At
    act: str
    who: Actor
    on: ActedOn
    via: str
    request_id: str = ""
    trace: str = ""
    reason: str
    outcome: str
    status: int
    before: Mapping[str, Any] = {}
    after: Mapping[str, Any] = {}
    count: int = 0


class InHand(Struct, Generic[At], frozen=True):
    """Something that a process works on: the queue it came from, what it is about, and since when."""

    what: str
    id: str
    since: At | None = None


class Process(Short, Generic[At], frozen=True, kw_only=True, rename="camel"):
    """A process, as it told of itself at `seenAt`. `state` is `alive`, `silent` for over 15 s, or `gone` for over a
    minute; a clean end takes it from the list at once, and an hour without a sign, too.

    `settingsDigest` is the same where settings are the same. `inHand` shows the oldest 20 of `inHandCount` things.
    `loopLagSeconds` bounds how late its event loop was in the last five seconds. A scheduler tells for how long the
    oldest occurrence has waited to be claimed, the oldest batch for a worker, and how many occurrences there are.
    """

    id: str
    roles: tuple[str, ...]
    host: str
    version: str
    state: str
    started_at: At
    seen_at: At
    phase: str
    settings_digest: str = ""
    failing_checks: tuple[str, ...] = ()
    in_hand: tuple[InHand[At], ...] = ()
    in_hand_count: int = 0
    lanes: Mapping[str, int] = {}
    loop_lag_seconds: float = 0.0
    memory_bytes: int = 0
    clock_skew_seconds: float = 0.0
    feedback_lag_records: int = 0
    oldest_visible_seconds: float = 0.0
    oldest_batch_seconds: float = 0.0
    occurrences_pending: int = 0


class Queue(Struct, frozen=True, kw_only=True, rename="camel"):
    """A queue of tasks: messages that wait, and those in workers' hands; messages a second."""

    name: str
    ready: int
    unacked: int
    consumers: int
    publish_rate: float = 0.0
    deliver_rate: float = 0.0


class Minute(Short, Generic[At], frozen=True, kw_only=True, rename="camel"):
    """The work of all processes in the minute from `at` on; minutes without anything are left out.

    `recipients` are those of push jobs, by outcome, `messages` the calls of providers, by their answer (`accepted`),
    and `deliveries` the bus's calls of receivers, by outcome (`success`). `fired` are attempts of schedules by callback
    and outcome: `http/fired` counts calls that the target took. `lateness` is by the end of the bucket in microseconds.
    A process adds its counts every ten seconds. The counts of its last ten seconds are lost if it is killed.
    """

    at: At
    recipients: Mapping[str, int] = {}
    messages: Mapping[str, int] = {}
    deliveries: Mapping[str, int] = {}
    fired: Mapping[str, int] = {}
    lateness: Mapping[str, int] = {}
    retries: int = 0
    dead_letters: int = 0
    requests: int = 0
    server_errors: int = 0
    feedback: int = 0


class Setting(Struct, frozen=True, kw_only=True):
    """A setting. `value` and `default` are as a settings file has them, with secrets masked; few
    deployments change `rare` ones. `settingsDigest` of `/processes` tells which processes have other settings."""

    name: str
    value: str
    default: str
    sentence: str = ""
    rare: bool = False


class Sign(Struct, Generic[At], frozen=True, kw_only=True):
    """A sign of trouble: what it means (`sentence`), what exactly is seen, since when if that is known, and what to do.
    The runbook of this name tells more."""

    name: str
    severity: str
    sentence: str
    seen: str = ""
    remedy: str
    since: At | None = None


class Attention(Struct, frozen=True):
    """A kind of work that waits for a person: how much there is of it, and a sentence that says so."""

    kind: str
    count: int
    sentence: str


class Unknown(Struct, Generic[At], frozen=True):
    """A part of the overview that could not be read, why, and since when this process has seen that."""

    what: str
    reason: str
    since: At | None = None


class Caller(Struct, frozen=True, kw_only=True, rename="camel"):
    """The caller. `namespace` owns their schedules, `allowedApps` are apps whose admin they are, and `roles` are what
    else they may do. An admin (`isAdmin`) needs neither. `reasons` says whether they have to give one
    (`X-Carillon-Reason`) to stop, delete, cancel, discard, revoke or purge something."""

    namespace: str
    name: str
    is_admin: bool
    allowed_apps: tuple[str, ...]
    roles: Mapping[str, str]
    reasons: str = "optional"


class BrowserSession(Struct, Generic[At], frozen=True, kw_only=True, rename="camel"):
    """A browser that is signed in. When it was used last is known to the minute. It ends at `endsAt`, after an hour
    without use, or with its token. `isThis` tells that the request came from it, by a page."""

    id: str
    began_at: At
    seen_at: At
    ends_at: At
    address: str
    agent: str
    is_this: bool


class SigningSecret(Struct, Generic[At], frozen=True):
    """A new secret, which is never shown again. The former secret signs beside it until `alone_from`."""

    namespace: str
    version: int
    secret: str
    alone_from: At

    def __repr__(self) -> str:
        """Without the secret: this ends in logs."""
        return f"SigningSecret(namespace={self.namespace!r}, version={self.version})"


class Namespace(Struct, frozen=True, omit_defaults=True):
    """A namespace: how many tokens share it, and how many schedules it has, finished ones too. 1,001 means more
    than 1,000. With `?counts=false` there are no numbers."""

    namespace: str
    tokens: int | None = None
    schedules: int | None = None


class OpenJobs(Struct, Generic[Job], frozen=True):
    """Jobs with something left to do, counted by their state up to 100,000; the newest paused and running ones, and
    those that start next. In `waiting`, a localized push is counted by its next zone."""

    open: Mapping[str, int] = {}
    paused: tuple[Job, ...] = ()
    running: tuple[Job, ...] = ()
    waiting: tuple[Job, ...] = ()


class Overview(Short, Generic[At, Job], frozen=True, kw_only=True, rename="camel"):
    """The deployment at `asOf`. `verdict` is `well`; `ailing` if a sign shows or work needs `attention`; or `unknown`
    if neither is so and not everything could be read. `partial` says that the caller has no role over all there is:
    then jobs are those of up to 20 of the caller's own apps. Processes, queues, minutes, attention and dead letters
    are left out then, and so is what exactly is seen of a sign. Minutes and counts are up to five seconds old."""

    as_of: At
    verdict: str
    signs: tuple[Sign[At], ...] = ()
    attention: tuple[Attention, ...] = ()
    unknown: tuple[Unknown[At], ...] = ()
    partial: bool = False
    jobs: OpenJobs[Job] = OpenJobs()
    dead_letters: int = 0
    processes: tuple[Process[At], ...] = ()
    queues: tuple[Queue, ...] = ()
    minutes: tuple[Minute[At], ...] = ()
