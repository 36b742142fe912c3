"""The moves of a schedule: pause, resume, fire by hand, move with its anchor, backfill, and cancel an instant."""

import secrets
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath

from carillon.wire.clock import AnchorBody, BackfillBody, Backfilled, Fired, MoveBody, MovedSchedules
from services.api.accounts.apps import NAMESPACE, namespace_of
from services.api.clock.definitions import Shown, show_schedule
from services.api.clock.schedules import (
    KEY,
    SCHEDULE,
    SCHEDULES,
    SEGMENTS,
    find_pending,
    id_of,
    require,
    sameness,
)
from services.api.http import bodies
from services.api.http.bodies import Checks, Timestamp
from services.api.http.identity import caller_of
from services.api.http.paging import idempotency_of
from services.api.http.rights import OPERATE_NAMESPACE
from services.api.http.routes import Resource, Route
from shared.clock.anchors import AnchorFlow
from shared.clock.backfill import BackfillFlow
from shared.clock.rules.instants import read_offset
from shared.clock.rules.schedules import read_labels
from shared.clock.schedules import ScheduleFlow
from shared.console.store_idempotency import FirstUse
from shared.core.errors import Invalid, NotFound
from shared.core.instants import format_instant, read_instant
from shared.store import Store

MOVED = 10_000
_anchor_decoder = msgspec.json.Decoder(AnchorBody[Timestamp])
_move_decoder = msgspec.json.Decoder(MoveBody)
_backfill_decoder = msgspec.json.Decoder(BackfillBody[Timestamp])
_route = partial(Route, segments=SEGMENTS)
_move = partial(
    _route, who=OPERATE_NAMESPACE, answers={HTTPStatus.OK: Shown},
    problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), parameters=(NAMESPACE,),
)  # fmt: skip


class ScheduleMovesResource(Resource):
    def __init__(self, store: Store, flow: ScheduleFlow, anchors: AnchorFlow, backfills: BackfillFlow) -> None:
        self._store = store
        self._flow = flow
        self._anchors = anchors
        self._backfills = backfills

    @_move(
        "PATCH", SCHEDULE, summary="Move the anchor of a schedule, and with it all that has not fired.",
        act="schedule.move", body=AnchorBody[Timestamp], limits=Checks({}),
    )  # fmt: skip
    async def move_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        body = bodies.decode_body(await request.body(), _anchor_decoder, limits=Checks({}))
        anchor = read_instant(body.anchor, field="anchor")
        moved = require(await self._anchors.move(id_of(request, key), anchor), key)
        return bodies.answer(show_schedule(moved, ahead=await find_pending(self._store, moved, await self._flow.now())))

    @_route(
        "POST", SCHEDULES + "/move", summary="Move the anchors of all schedules with these labels.",
        act="schedule.move-many", who=OPERATE_NAMESPACE, body=MoveBody, limits=Checks({}),
        answers={HTTPStatus.OK: MovedSchedules}, parameters=(KEY, NAMESPACE),
    )  # fmt: skip
    async def move_schedules(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        content = await request.body()
        body = bodies.decode_body(content, _move_decoder, limits=Checks({}))
        labels = read_labels(",".join(body.labels), field="labels")
        if not labels:
            raise Invalid("name at least one label: it chooses the schedules to be moved", field="labels")
        by = timedelta(milliseconds=read_offset(body.by, field="by"))
        namespace, used = namespace_of(request), idempotency_of(request, sameness(request, content))
        if await self._store.schedules.count(namespace, labels=labels, most=MOVED + 1) > MOVED:
            raise Invalid(f"more than {MOVED:,} schedules have these labels: add a label", field="labels")
        first = await self._store.idempotency.claim(used) if used else None
        if first is not None and first.made:
            return bodies.answer(msgspec.json.decode(first.made, type=MovedSchedules))
        name = used.key if used else secrets.token_hex(8)
        moved = MovedSchedules(*await self._anchors.move_all(namespace, labels, by, name))
        if used:
            await self._store.idempotency.remember(used.key, msgspec.json.encode(moved).decode())
        return bodies.answer(moved)

    @_route(
        "DELETE", SCHEDULE + "/occurrences/{timestamp:str}", summary="Take one pending instant out of a list.",
        act="schedule.cancel", who=OPERATE_NAMESPACE, answers={HTTPStatus.NO_CONTENT: None},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), parameters=(NAMESPACE,),
    )  # fmt: skip
    async def cancel_occurrence(
        self, request: Request[Any, Any, Any], key: FromPath[str], timestamp: FromPath[str]
    ) -> Response[None]:
        instant = read_instant(timestamp, field="timestamp")
        if not await self._flow.cancel(id_of(request, key), instant):
            raise NotFound("nothing is pending at this instant under this key", field="timestamp", value=timestamp)
        return bodies.empty()

    @_move(
        "POST", SCHEDULE + "/pause", summary="Hold a schedule: nothing of it fires until it is resumed.",
        act="schedule.pause",
    )  # fmt: skip
    async def pause_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        return bodies.answer(show_schedule(require(await self._flow.pause(id_of(request, key)), key)))

    @_move(
        "POST", SCHEDULE + "/resume",
        summary="Let a schedule go on; what came due meanwhile is dealt with by its misfire rule.",
        act="schedule.resume",
    )  # fmt: skip
    async def resume_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        namespace, id = namespace_of(request), id_of(request, key)
        caller = caller_of(request)
        if namespace != caller.namespace or caller.token_id:
            # Otherwise a revocation would pause the schedule once more.
            await self._store.revocations.spare(namespace, id, token_id=caller.token_id)
        return bodies.answer(show_schedule(require(await self._flow.resume(id), key)))

    @_route(
        "POST", SCHEDULE + "/fire", summary="Have a schedule's callback done once, now.",
        act="schedule.fire", who=OPERATE_NAMESPACE, answers={HTTPStatus.ACCEPTED: Fired[Timestamp]},
        problems=(HTTPStatus.NOT_FOUND,), parameters=(KEY, NAMESPACE),
    )  # fmt: skip
    async def fire_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        id = id_of(request, key)
        schedule = require(await self._store.schedules.get(id), key)
        used = idempotency_of(request, sameness(request, await request.body()))
        first = FirstUse()
        if used is not None:
            # The key keeps the time of the first request with it, and the generation that this request fired.
            now = await self._flow.now()
            first = await self._store.idempotency.claim(used, at=now, made=schedule.generation)
        asked = require(await self._flow.fire(id, at=first.at, generation=first.made), key)
        return bodies.answer(Fired(asked.message_id, format_instant(asked.due)), HTTPStatus.ACCEPTED)

    @_route(
        "POST", SCHEDULE + "/backfill",
        summary="Fire the instants that lie between two past times. Each is fired by a backfill once.",
        act="schedule.backfill", who=OPERATE_NAMESPACE, body=BackfillBody[Timestamp], limits=Checks({}),
        answers={HTTPStatus.ACCEPTED: Backfilled}, problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
        parameters=(NAMESPACE,),
    )  # fmt: skip
    async def backfill_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        body = bodies.decode_body(await request.body(), _backfill_decoder, limits=Checks({}))
        since, until = read_instant(body.since, field="from"), read_instant(body.until, field="to")
        instants = require(await self._backfills.run(id_of(request, key), since, until), key)
        return bodies.answer(Backfilled(instants), HTTPStatus.ACCEPTED)
