"""`/processes`, `/queues`, `/minutes` and `/settings`: the running processes, their queues, work and settings."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from msgspec import convert

from carillon.wire.console import InHand, Minute, Process, Queue, Setting
from services.api.http import bodies, paging
from services.api.http.bodies import Checks, OneOf, Timestamp
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
PROCESS_STATES = Checks({Process: {"state": OneOf(tuple(ProcessState))}})
_MINUTES = Parameter(
    name="minutes",
    description="How many minutes back, this one included.",
    schema={"type": "integer", "minimum": 1, "maximum": MOST, "default": _DEFAULT_MINUTES},
)


def show_process(process: RunningProcess, now: datetime) -> Process[str]:
    return Process(
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
        in_hand=tuple(InHand(thing.what, thing.id, format_instant(thing.since)) for thing in process.in_hand),
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


def show_minute(minute: MinuteCounts) -> Minute[str]:
    counts = {name: getattr(minute, name) for name in Minute.__struct_fields__ if name != "at"}
    return Minute(at=format_instant(minute.at), **counts)


class ProcessesResource(Resource):
    def __init__(self, store: Store, time: DatabaseTime, queues: Cached[Sequence[QueueState]]) -> None:
        self._store = store
        self._time = time
        self._queues = queues

    @Route(
        "GET", "/processes", summary="List the processes that run, and those that fell silent within an hour.",
        who=VIEW_ALL, answers={HTTPStatus.OK: list[Process[Timestamp]]}, limits=PROCESS_STATES,
    )  # fmt: skip
    async def list_processes(self) -> Response[bytes]:
        now = await self._time.now()
        return bodies.answer([show_process(process, now) for process in await self._store.processes.list()])

    @Route("GET", "/queues", summary="List the queues of tasks.", who=VIEW_ALL, answers={HTTPStatus.OK: list[Queue]})
    async def list_queues(self) -> Response[bytes]:
        return bodies.answer(convert(await self._queues.get(), list[Queue], from_attributes=True))

    @Route(
        "GET", "/minutes", summary="List what was done, minute by minute, the oldest first.",
        who=VIEW_ALL, answers={HTTPStatus.OK: list[Minute[Timestamp]]}, parameters=(_MINUTES,),
    )  # fmt: skip
    async def list_minutes(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        rule = f"an integer from 1 to {MOST}"
        asked = paging.read_integer(request, _MINUTES.name, most=MOST, default=_DEFAULT_MINUTES, rule=rule)
        since = await self._time.now() - timedelta(minutes=asked - 1)
        return bodies.answer([show_minute(minute) for minute in await self._store.minutes.since(since)])


class SettingsResource(Resource):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @Route(
        "GET", "/settings", summary="List the settings of the API process that answers, with secrets masked.",
        who=ADMIN, answers={HTTPStatus.OK: list[Setting]},
    )  # fmt: skip
    async def list_settings(self) -> Response[bytes]:
        return bodies.answer(convert(list_settings(self._settings), list[Setting], from_attributes=True))
