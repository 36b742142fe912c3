"""`/processes`, `/queues`, `/minutes` and `/settings`: the running processes, their queues, work and settings."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from msgspec import Struct

from services.api.http import bodies, paging
from services.api.http.bodies import Timestamp
from services.api.http.rights import ADMIN, VIEW_ALL
from services.api.http.routes import Parameter, Resource, Route
from shared.console.rules.processes import MOST, MinuteCounts, ProcessState, QueueState, RunningProcess
from shared.core.instants import format_instant
from shared.runtime.cached import Cached
from shared.runtime.configuration import list_settings
from shared.runtime.settings import Settings
from shared.store import Store
from shared.time import DatabaseTime

_DEFAULT_MINUTES = 60
_MINUTES = Parameter(
    name="minutes",
    description="How many minutes back, this one included.",
    schema={"type": "integer", "minimum": 1, "maximum": MOST, "default": _DEFAULT_MINUTES},
)


class ThingInHandView(Struct, frozen=True):
    """Something that a process works on: the queue it came from, what it is about, and since when."""

    what: str
    id: str
    since: Timestamp


class ProcessView(Struct, frozen=True, kw_only=True, rename="camel"):
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
    state: ProcessState
    started_at: Timestamp
    seen_at: Timestamp
    phase: str
    settings_digest: str
    failing_checks: tuple[str, ...]
    in_hand: list[ThingInHandView]
    in_hand_count: int
    lanes: dict[str, int]
    loop_lag_seconds: float
    memory_bytes: int
    clock_skew_seconds: float
    feedback_lag_records: int
    oldest_visible_seconds: float
    oldest_batch_seconds: float
    occurrences_pending: int


class QueueView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A queue of tasks: messages that wait, and those in workers' hands; messages a second."""

    name: str
    ready: int
    unacked: int
    consumers: int
    publish_rate: float
    deliver_rate: float


class MinuteView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The work of all processes in the minute from `at` on; minutes without anything are left out.

    `recipients` are those of push jobs, by outcome, `messages` the calls of providers, by their answer (`accepted`),
    and `deliveries` the bus's calls of receivers, by outcome (`success`). `fired` are attempts of schedules by callback
    and outcome: the target has what is `http/fired`. `lateness` is by the end of the bucket in microseconds. A process
    adds its counts every ten seconds, so one that was killed took up to ten seconds of them with it.
    """

    at: Timestamp
    recipients: dict[str, int]
    messages: dict[str, int]
    deliveries: dict[str, int]
    fired: dict[str, int]
    lateness: dict[str, int]
    retries: int
    dead_letters: int
    requests: int
    server_errors: int
    feedback: int


def process_view(process: RunningProcess, now: datetime) -> ProcessView:
    return ProcessView(
        id=process.id,
        roles=process.roles,
        host=process.host,
        version=process.version,
        state=process.state_at(now),
        started_at=format_instant(process.started_at),
        seen_at=format_instant(process.seen_at),
        phase=process.phase,
        settings_digest=process.settings_digest,
        failing_checks=process.failing,
        in_hand=[ThingInHandView(thing.what, thing.id, format_instant(thing.since)) for thing in process.in_hand],
        in_hand_count=process.in_hand_count,
        lanes=process.lanes,
        loop_lag_seconds=process.loop_lag_seconds,
        memory_bytes=process.memory_bytes,
        clock_skew_seconds=process.clock_skew_seconds,
        feedback_lag_records=process.feedback_lag_records,
        oldest_visible_seconds=process.oldest_visible_seconds,
        oldest_batch_seconds=process.oldest_batch_seconds,
        occurrences_pending=process.occurrences_pending,
    )


def queue_view(queue: QueueState) -> QueueView:
    return QueueView(**{name: getattr(queue, name) for name in QueueView.__struct_fields__})


def minute_view(minute: MinuteCounts) -> MinuteView:
    counts = {name: getattr(minute, name) for name in MinuteView.__struct_fields__ if name != "at"}
    return MinuteView(at=format_instant(minute.at), **counts)


class ProcessesResource(Resource):
    def __init__(self, store: Store, time: DatabaseTime, queues: Cached[Sequence[QueueState]]) -> None:
        self._store = store
        self._time = time
        self._queues = queues

    @Route(
        "GET", "/processes", summary="List the processes that run, and those that fell silent within an hour.",
        who=VIEW_ALL, answers={HTTPStatus.OK: list[ProcessView]},
    )  # fmt: skip
    async def list_processes(self) -> Response[bytes]:
        now = await self._time.now()
        return bodies.answer([process_view(process, now) for process in await self._store.processes.list()])

    @Route(
        "GET", "/queues", summary="List the queues of tasks.", who=VIEW_ALL, answers={HTTPStatus.OK: list[QueueView]}
    )
    async def list_queues(self) -> Response[bytes]:
        return bodies.answer([queue_view(queue) for queue in await self._queues.get()])

    @Route(
        "GET", "/minutes", summary="List what was done, minute by minute, the oldest first.",
        who=VIEW_ALL, answers={HTTPStatus.OK: list[MinuteView]}, parameters=(_MINUTES,),
    )  # fmt: skip
    async def list_minutes(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        rule = f"an integer from 1 to {MOST}"
        asked = paging.read_integer(request, _MINUTES.name, most=MOST, default=_DEFAULT_MINUTES, rule=rule)
        since = await self._time.now() - timedelta(minutes=asked - 1)
        return bodies.answer([minute_view(minute) for minute in await self._store.minutes.since(since)])


class SettingView(Struct, frozen=True, kw_only=True):
    """A setting. `value` and `default` are as a settings file has them, with secrets masked; `rare` ones few
    deployments change. Which processes have other settings, `settingsDigest` of `/processes` tells."""

    name: str
    value: str
    default: str
    sentence: str
    rare: bool


class SettingsResource(Resource):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @Route(
        "GET", "/settings", summary="List the settings of the API process that answers, with secrets masked.",
        who=ADMIN, answers={HTTPStatus.OK: list[SettingView]},
    )  # fmt: skip
    async def list_settings(self) -> Response[bytes]:
        return bodies.answer(
            [
                SettingView(**{name: getattr(each, name) for name in SettingView.__struct_fields__})
                for each in list_settings(self._settings)
            ]
        )
