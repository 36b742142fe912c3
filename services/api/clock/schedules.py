"""`/schedules`: the caller's schedules by key, their instants and callbacks, and how many a namespace may have.

A namespace is the caller's own, or one that a role gives access to.
"""

import asyncio
import re
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from cachetools import LRUCache
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.accounts.apps import CALLERS_NAMESPACE, NAMESPACE, namespace_of, own_namespace
from services.api.clock import schedule_bodies as schedule_body
from services.api.clock.schedule_bodies import (
    NEXT,
    FiredView,
    ScheduleBody,
    SchedulePreview,
    ScheduleView,
    pending_instants,
    planned_instants,
    schedule_view,
)
from services.api.http import paging, wire
from services.api.http.acts import UNRECORDED
from services.api.http.identity import caller_of
from services.api.http.paging import Sameness, idempotency_of
from services.api.http.rights import KNOWN, OPERATE_NAMESPACE, VIEW_NAMESPACE, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from shared.accounts.rules.apps import fold_namespace
from shared.clock.rules.callbacks import Targets
from shared.clock.rules.occurrences import OccurrenceKind
from shared.clock.rules.recurrence import Every
from shared.clock.rules.schedules import KEY as KEY_RULE
from shared.clock.rules.schedules import Definition, Schedule, ScheduleState, next_due, read_labels, schedule_id
from shared.clock.schedules import Accepted, Made, ScheduleFlow, Wanted, nothing_ahead
from shared.console.store_idempotency import FirstUse
from shared.core.errors import Conflict, Invalid, NotFound, Refused, Unavailable
from shared.core.ids import Idempotency
from shared.core.instants import format_instant, read_instant
from shared.runtime.cached import Coalescer
from shared.runtime.settings import ApiSettings
from shared.store import Store

_NAMESPACES = 10_000
_WAIT_SECONDS = 0.5
_FRESH_SECONDS = 60.0
_FULL_SECONDS = 1.0
# A count that took long is made rarely: counting takes this part of the time at most.
_COUNTING_SHARE = 0.05


class _Count(Struct):
    """How many schedules of a namespace are unfinished: `counted` then, and `added` here since."""

    counting: "asyncio.Task[None] | None" = None
    counted: int = 0
    added: int = 0
    at: float = float("-inf")
    took: float = 0.0


class ScheduleLimits:
    """The limits of a namespace's schedules: how many there may be, and how often they may recur.

    They are counted now and then, in the background where that takes long; until the first count is there, nothing is
    refused. In between a process adds what it takes in itself. So several processes together may exceed the number by
    what they take in between two counts.
    """

    def __init__(self, store: Store, settings: ApiSettings) -> None:
        self._store = store
        self._pending = settings.pending_schedules
        self._least_every = settings.least_every_seconds
        self._counts: LRUCache[str, _Count] = LRUCache(_NAMESPACES)

    async def check(self, wanted: Wanted) -> None:
        for refusal in (await self.judge([wanted])).values():
            raise refusal

    async def judge(self, wanted: Sequence[Wanted]) -> dict[str, Refused]:
        """The refusals by id; all are of one namespace. A schedule that exists does not count anew."""
        often = {each.id: refusal for each in wanted if (refusal := self._too_often(each)) is not None}
        others = [each for each in wanted if each.id not in often]
        return often | (await self._judge_number(others) if others else {})

    def _too_often(self, wanted: Wanted) -> Invalid | None:
        recurrence = wanted.definition.recurrence
        if not isinstance(recurrence, Every) or recurrence.seconds >= self._least_every:
            return None
        reason = f"every is at least {self._least_every} seconds in this deployment"
        return Invalid(reason, field="every", value=recurrence.seconds)

    async def _judge_number(self, wanted: Sequence[Wanted]) -> dict[str, Refused]:
        count = await self._count(wanted[0].namespace, len(wanted))
        room = max(self._pending - count.counted - count.added, 0)
        if room >= len(wanted):
            count.added += len(wanted)
            return {}
        there = await self._store.schedules.many([each.id for each in wanted])
        fresh = list(dict.fromkeys(each.id for each in wanted if each.id not in there))
        count.added += min(len(fresh), room)
        reason = f"{self._pending:,} unfinished schedules are all that a namespace may have"
        return {id: Conflict(reason, field="key") for id in fresh[room:]}

    async def _count(self, namespace: str, more: int) -> _Count:
        """The count, read again if it is old, or if it is not fresh and there seems to be no room."""
        count = self._counts[namespace] = self._counts.get(namespace) or _Count()
        full = count.counted + count.added + more > self._pending
        fresh = max(_FULL_SECONDS if full else _FRESH_SECONDS, count.took / _COUNTING_SHARE)
        if count.counting is None and time.monotonic() >= count.at + fresh:
            count.counting = asyncio.create_task(self._look(namespace, count))
        if count.counting is not None:
            await asyncio.wait({count.counting}, timeout=_WAIT_SECONDS)
        return count

    async def _look(self, namespace: str, count: _Count) -> None:
        began = time.monotonic()
        added = count.added
        try:
            count.counted = await self._store.schedules.count_pending(namespace)
            count.added -= added
        except Unavailable:
            pass  # what this request stores meets the same store
        finally:
            count.at = time.monotonic()
            count.took = count.at - began
            count.counting = None


SCHEDULES = "/schedules"
SCHEDULE = "/schedules/{key:str}"
OUTCOMES = 20
TOGETHER = 20  # instants of a schedule that is made in one go with others
KEY = Parameter(
    name="Idempotency-Key",
    description=(
        "Kept for 24 hours. The same key with another request is refused. The same request is answered by what the "
        "first one made, and makes nothing anew, though that was deleted, replaced or fired meanwhile."
    ),
    schema={"type": "string", "minLength": 1, "maxLength": 255},
    place="header",
)
_PREFIX = re.compile(r"[A-Za-z0-9\-_.~:]{0,255}")
_FILTERS = (
    Parameter(name="prefix", description="Only keys that begin so.", schema={"type": "string"}),
    Parameter(
        name="state", description="Only those in this state.", schema={"enum": [state.value for state in ScheduleState]}
    ),
    Parameter(
        name="label",
        description="Only those with this label, such as `team:billing`. Several, joined by commas or given one by "
        "one, are all needed.",
        schema={"type": "string"},
        repeated=True,
    ),
)
_SEGMENTS = {
    "key": {"type": "string", "pattern": f"^{KEY_RULE.pattern}$", "description": "The key of the schedule."},
    "timestamp": {"type": "string", "format": "date-time", "description": "The instant, as it was asked for."},
}
_MADE = {HTTPStatus.CREATED: ScheduleView, HTTPStatus.OK: ScheduleView}
_route = partial(Route, segments=_SEGMENTS)
_move = partial(
    _route, "POST", who=OPERATE_NAMESPACE, answers={HTTPStatus.OK: ScheduleView},
    problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), parameters=(NAMESPACE,),
)  # fmt: skip


class SchedulesResource(Resource):
    def __init__(self, store: Store, flow: ScheduleFlow, targets: Targets, limits: ScheduleLimits) -> None:
        self._store = store
        self._limits = limits
        self._flow = flow
        self._targets = targets
        self._accept = Coalescer(flow.accept)

    @_route(
        "GET", SCHEDULES, summary="List the schedules of a namespace by key, without their instants.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[ScheduleView]},
        parameters=(*_FILTERS, NAMESPACE), paged=True,
    )  # fmt: skip
    async def list_schedules(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = paging.read_page(request, str)
        prefix = paging.first(request, "prefix")
        state = paging.read_choice(request, "state", ScheduleState, "state is one of")
        if _PREFIX.fullmatch(prefix) is None:
            raise Invalid("no key can begin so: a key has letters, digits and - _ . ~ :", field="prefix", value=prefix)
        labels = read_labels(",".join(request.query_params.getall("label", [])))
        namespace = namespace_of(request)
        schedules = await self._store.schedules.page(
            namespace, prefix=prefix, state=state, labels=labels, after=asked.after or "", limit=asked.limit
        )
        headers = paging.links(request, asked, schedules, lambda schedule: schedule.key)
        personal = sees_personal_data(request)
        return wire.answer([schedule_view(schedule, personal=personal) for schedule in schedules], headers=headers)

    @_route(
        "POST", SCHEDULES, summary="Make a schedule; what is there already with the same content stays as it is.",
        act="schedule.create", who=KNOWN,
        body=ScheduleBody, answers=_MADE, problems=(HTTPStatus.CONFLICT,), parameters=(KEY, CALLERS_NAMESPACE),
    )  # fmt: skip
    async def create_schedule(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        namespace = own_namespace(request)
        content = await request.body()
        key, definition = schedule_body.read(content, self._targets)
        wanted = Wanted(namespace, key, definition, caller_of(request).token_id)
        await self._limits.check(wanted)
        used = idempotency_of(request, sameness(request, content))
        if used is None:
            return await self._answer_accepted(await self._make(wanted))
        first = await self._first_use(used, wanted)
        if first is not None and first.made:
            made = msgspec.json.decode(first.made, type=Made)
            return await self._answer_accepted(await self._flow.repeat(wanted, made))
        accepted = await self._make(wanted)
        schedule = accepted.schedule
        made = Made(schedule.generation, schedule.created_at, schedule.accepted_at)
        await self._store.idempotency.remember(used.key, msgspec.json.encode(made).decode())
        return await self._answer_accepted(accepted)

    @_route(
        "POST", SCHEDULES + "/preview", summary="Tell the next instants of a schedule that is not made.",
        act=UNRECORDED, who=KNOWN, body=ScheduleBody, answers={HTTPStatus.OK: SchedulePreview},
    )  # fmt: skip
    async def preview_schedule(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        key, definition = schedule_body.read_preview(await request.body(), self._targets)
        instants = planned_instants(definition, key, await self._flow.now())
        if not instants:
            raise nothing_ahead(definition)
        return wire.answer(SchedulePreview([format_instant(instant) for instant in instants]))

    @_route(
        "GET", SCHEDULE, summary="Show a schedule, its next instants and its last outcomes.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: ScheduleView}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(NAMESPACE,),
    )  # fmt: skip
    async def get_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        schedule = require(await self._store.schedules.get(id_of(request, key)), key)
        now = await self._flow.now()
        ahead, personal = await self._find_pending(schedule, now), sees_personal_data(request)
        outcomes = await self._store.outcomes.latest(schedule.owner, OUTCOMES)
        again = await self._store.occurrences.find_next_try(schedule.owner, schedule.generation, now=now)
        view = schedule_view(schedule, ahead=ahead, outcomes=outcomes, next_try=again, personal=personal)
        return wire.answer(view)

    @_route(
        "PUT", SCHEDULE,
        summary="Make a schedule, or replace all that is pending of it; the same content changes nothing.",
        act="schedule.replace", who=KNOWN, body=ScheduleBody, answers=_MADE, parameters=(CALLERS_NAMESPACE,),
    )  # fmt: skip
    async def replace_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        namespace = own_namespace(request)
        _, definition = schedule_body.read(await request.body(), self._targets, key=key)
        wanted = Wanted(namespace, key, definition, caller_of(request).token_id)
        await self._limits.check(wanted)
        return await self._answer_accepted(await self._flow.put(wanted))

    @_route(
        "DELETE", SCHEDULE, summary="Delete a schedule and all that is pending of it.",
        act="schedule.delete", who=OPERATE_NAMESPACE,
        answers={HTTPStatus.NO_CONTENT: None}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(NAMESPACE,),
    )  # fmt: skip
    async def delete_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[None]:
        if not await self._flow.remove(id_of(request, key)):
            raise not_found(key)
        return wire.empty()

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
        return wire.empty()

    @_move(
        SCHEDULE + "/pause", act="schedule.pause", summary="Hold a schedule: nothing of it fires until it is resumed."
    )
    async def pause_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        return wire.answer(schedule_view(require(await self._flow.pause(id_of(request, key)), key)))

    @_move(
        SCHEDULE + "/resume",
        act="schedule.resume",
        summary="Let a schedule go on; what came due meanwhile is dealt with by its misfire rule.",
    )
    async def resume_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        namespace, id = namespace_of(request), id_of(request, key)
        caller = caller_of(request)
        if namespace != caller.namespace or caller.token_id:
            # What was paused with its caller's rights would be paused once more otherwise.
            await self._store.revocations.spare(namespace, id, token_id=caller.token_id)
        return wire.answer(schedule_view(require(await self._flow.resume(id), key)))

    @_route(
        "POST", SCHEDULE + "/fire", summary="Have a schedule's callback done once, now.",
        act="schedule.fire", who=OPERATE_NAMESPACE,
        answers={HTTPStatus.ACCEPTED: FiredView}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(KEY, NAMESPACE),
    )  # fmt: skip
    async def fire_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        id = id_of(request, key)
        schedule = require(await self._store.schedules.get(id), key)
        used = idempotency_of(request, sameness(request, await request.body()))
        first = FirstUse() if used is None else await self._first_firing(used, schedule)
        asked = await self._flow.fire(id, at=first.at, generation=first.made)
        if asked is None:
            raise not_found(key)
        return wire.answer(FiredView(asked.message_id, format_instant(asked.due)), HTTPStatus.ACCEPTED)

    async def _first_firing(self, used: Idempotency, schedule: Schedule) -> FirstUse:
        """Use the key: the time of the first request with it, and the generation that it fired."""
        now = await self._flow.now()
        return await self._store.idempotency.claim(used, at=now, made=schedule.generation)

    async def _first_use(self, used: Idempotency, wanted: Wanted) -> FirstUse | None:
        if lies_ahead(wanted.definition, wanted.key, await self._flow.now()):
            return await self._store.idempotency.claim(used)
        return await self._store.idempotency.recall(used)

    async def _make(self, wanted: Wanted) -> Accepted:
        # A caller does not wait for the long list of another one.
        together = len(wanted.definition.instants) <= TOGETHER
        answer = await self._accept(wanted) if together else (await self._flow.accept([wanted]))[0]
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def _answer_accepted(self, answer: Accepted) -> Response[bytes]:
        schedule = answer.schedule
        if answer.created or answer.changed:
            ahead = planned_instants(schedule.definition, schedule.key, schedule.accepted_at)
        else:
            ahead = await self._find_pending(schedule, await self._flow.now())
        status = HTTPStatus.CREATED if answer.created else HTTPStatus.OK
        return wire.answer(schedule_view(schedule, ahead=ahead, skipped=answer.skipped), status)

    async def _find_pending(self, schedule: Schedule, now: datetime) -> list[datetime]:
        is_list = schedule.definition.recurrence is None
        kind, after = (OccurrenceKind.ONCE, now) if is_list else (OccurrenceKind.SERIES, None)
        found = await self._store.occurrences.find_upcoming(
            schedule.owner, NEXT, generation=schedule.generation, kind=kind, after=after
        )
        return pending_instants(schedule, found, now)


def id_of(request: Request[Any, Any, Any], key: str) -> str:
    return schedule_id(namespace_of(request), key)


def lies_ahead(definition: Definition, key: str, now: datetime) -> bool:
    if definition.recurrence is None:
        return definition.instants[-1] > now
    return next_due(definition, key, now) is not None


def require(schedule: Schedule | None, key: str) -> Schedule:
    if schedule is None:
        raise not_found(key)
    return schedule


def not_found(key: str) -> NotFound:
    return NotFound("there is no schedule with this key", field="key", value=key)


def sameness(request: Request[Any, Any, Any], content: bytes) -> Sameness:
    """The things that must be the same in a repeated request: route, namespace where it is another's, and body."""
    own, named = caller_of(request).namespace, fold_namespace(paging.first(request, NAMESPACE.name))
    return f"{request.method} {request.url.path}", "" if named == own else named, content
