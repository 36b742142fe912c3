"""The deployment as a whole: its overview, processes, queues, settings and audit."""

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from carillon.attempts import query_of
from carillon.calls import PAGE_SIZE, M, Resource, call, listing
from carillon.errors import CarillonError
from carillon.push_jobs import StoredJob
from carillon.wire import Short


class Queue(Struct, frozen=True, kw_only=True, rename="camel"):
    """A queue: messages that are `ready` and in workers' hands (`unacked`); messages a second."""

    name: str
    ready: int
    unacked: int
    consumers: int
    publish_rate: float = 0.0
    deliver_rate: float = 0.0


class Queues(Resource[M]):
    """The queues. All methods raise `CarillonError`."""

    @listing
    async def list(self) -> AsyncGenerator[Queue]:
        """All queues."""
        for queue in await self._get(list[Queue], "queues"):
            yield queue


class InHand(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that a process works on: `what` says where it came from, `id` what it is about."""

    what: str
    id: str
    since: datetime | None = None


class Process(Short, frozen=True, kw_only=True, rename="camel"):
    """A process, as it told of itself at `seen_at`. `state` is `alive`, `silent` or `gone`. `settings_digest` is the
    same where settings are the same. `in_hand` shows the oldest of `in_hand_count` things, and `lanes` how many of
    Kafka's lanes are in which state. A figure that a process of its roles does not measure is 0 or `None`."""

    id: str
    roles: tuple[str, ...]
    host: str
    version: str
    state: str
    started_at: datetime
    seen_at: datetime
    phase: str
    settings_digest: str = ""
    failing_checks: tuple[str, ...] = ()
    in_hand: tuple[InHand, ...] = ()
    in_hand_count: int = 0
    lanes: Mapping[str, int] = {}
    loop_lag_seconds: float | None = None
    memory_bytes: int | None = None
    clock_skew_seconds: float | None = None
    feedback_lag_records: int | None = None
    oldest_visible_seconds: float | None = None
    oldest_batch_seconds: float | None = None
    occurrences_pending: int | None = None


class Minute(Short, frozen=True, kw_only=True, rename="camel"):
    """The work of all processes in the minute from `at` on: `recipients` of push jobs by outcome, `messages` by the
    answer of their provider, `deliveries` of the bus by outcome, `fired` by callback and outcome (`http/fired`),
    `lateness` by the end of its bucket."""

    at: datetime
    seconds: float = 60.0
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


class Setting(Struct, frozen=True, kw_only=True, rename="camel"):
    """A setting of the API process that answered; `value` and `default` are as a settings file has them, with secrets
    masked. `rare` ones few deployments change."""

    name: str
    value: str
    default: str
    sentence: str = ""
    rare: bool = False


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


class Actor(Struct, frozen=True, kw_only=True):
    """The caller who did it: a `user` or a `token`, how they proved who they are (`token` or `proxy`), and the address
    they came from. Or it was `system`, Carillon by itself: then `name` is the role of the process."""

    namespace: str
    name: str
    way: str
    address: str
    kind: str = ""


class ActedOn(Struct, frozen=True, kw_only=True, rename="camel"):
    """The thing that an act was about: its `name`, where one is known, and the app or the namespace that it belongs
    to."""

    kind: str
    id: str
    app_id: str
    namespace: str
    name: str = ""


class AuditRecord(Short, frozen=True, kw_only=True, rename="camel"):
    """An act, `job.stop` for instance. `outcome` is `begun`, `done`, `refused`, `failed` or `unknown`; `status` that of
    the answer, 0 until there is one; `via` the caller's program; `reason` what they gave. `request_id` is what the
    answer bore in `X-Request-Id`, `trace` the id of the request's trace. `count` is how many things an act on many was
    done to; `before` and `after` have what it changed, by field, as far as the audit keeps that."""

    id: str
    at: datetime
    act: str
    who: Actor
    on: ActedOn
    via: str
    reason: str
    outcome: str
    status: int
    before: Mapping[str, Any] = {}
    after: Mapping[str, Any] = {}
    count: int = 0
    request_id: str = ""
    trace: str = ""


class Audit(Resource[M]):
    """The recorded acts. All methods raise `CarillonError`."""

    @listing
    def list(
        self,
        *,
        app_id: str = "",
        act: str = "",
        on: str = "",
        by: str = "",
        limit: int | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[AuditRecord]:
        """The recorded acts, the newest first, or only this `act`, `on` the thing with this id or key, `by` this
        namespace. With `app_id`, the acts on the app and on the things that belong to it; its admin may see them."""
        path = ("apps", app_id, "audit") if app_id else ("audit",)
        query = query_of(act=act, on=on, by=by)
        return self._list(list[AuditRecord], *path, query=query, limit=limit, page_size=page_size)


_UNWELL = int(HTTPStatus.INTERNAL_SERVER_ERROR)


class Caller(Struct, frozen=True, kw_only=True, rename="camel"):
    """The caller. `namespace` owns their schedules, `allowed_apps` are apps whose admin they are, and `roles` are their
    other rights. A caller who `is_admin` needs neither. If `reasons` are `required`, a caller who ends something gives
    a `reason=`."""

    namespace: str
    name: str
    is_admin: bool
    allowed_apps: tuple[str, ...]
    roles: dict[str, str]
    reasons: str = "optional"


class Namespace(Struct, frozen=True, kw_only=True):
    """A namespace: how many tokens share it, and how many schedules it has, finished ones too. 1,001 means more
    than 1,000; None, if the caller asked for no counts."""

    namespace: str
    tokens: int | None = None
    schedules: int | None = None


class Deployment(Resource[M]):
    """The deployment as a whole."""

    @call
    async def whoami(self) -> Caller:
        """The caller, and what they may do. Raises `Unauthorized`."""
        return await self._get(Caller, "whoami")

    @call
    async def overview(self) -> Overview:
        """Whether all is well and why not: what is wrong, what runs and what waits."""
        return await self._get(Overview, "overview")

    @call
    async def processes(self) -> tuple[Process, ...]:
        """The processes that run, and those that fell silent lately."""
        return await self._get(tuple[Process, ...], "processes")

    @call
    async def minutes(self, minutes: int = 60) -> tuple[Minute, ...]:
        """The work of each of the last minutes, the oldest first."""
        return await self._get(tuple[Minute, ...], "minutes", query={"minutes": str(minutes)})

    @call
    async def settings(self) -> tuple[Setting, ...]:
        """The settings, with secrets masked. Raises `Forbidden` for who is no admin."""
        return await self._get(tuple[Setting, ...], "settings")

    @listing
    def list_namespaces(
        self, *, counts: bool = True, limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[Namespace]:
        """The namespaces over which the caller has a role, by name; read page by page. Quicker without `counts`."""
        query = {} if counts else {"counts": "false"}
        return self._list(list[Namespace], "namespaces", query=query, limit=limit, page_size=page_size)

    @call
    async def healthcheck(self) -> bool:
        """Whether the API and its databases are well. This needs no credentials. Raises `Unavailable`."""
        try:
            await self._call("GET", "healthcheck")
        except CarillonError as error:
            if error.status == _UNWELL:
                return False
            raise
        return True
