"""`/schedules`: the caller's schedules by key, and the instants that fire next.

A namespace is the caller's own, or one that a role gives access to.

The look ahead goes by the clock's own index. Its window is a minute at first and doubles until it holds enough or
reaches its end. The index does not contain namespaces: if others have many instants in the window, the look ends at a
bound and reports how far it came.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.params import FromPath

from carillon.wire.clock import DueInstant, DueInstants, SchedulePreview
from services.api.accounts.apps import (
    CALLERS_NAMESPACE,
    NAMESPACE,
    NAMESPACES,
    namespace_of,
    namespaces_of,
    own_namespace,
)
from services.api.clock import definitions
from services.api.clock.definitions import (
    LIMITS,
    NEXT,
    Body,
    Shown,
    left_out_until,
    pending_instants,
    planned_instants,
    show_schedule,
)
from services.api.clock.limits import ScheduleLimits
from services.api.http import bodies, paging
from services.api.http.acts import UNRECORDED
from services.api.http.bodies import Checks, OneOf, Timestamp
from services.api.http.identity import caller_of
from services.api.http.paging import Sameness, idempotency_of
from services.api.http.rights import KNOWN, OPERATE_NAMESPACE, VIEW_NAMESPACE, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from shared.accounts.rules.apps import fold_namespace
from shared.clock.calendars import find_days_of
from shared.clock.rules.calendars import Days
from shared.clock.rules.callbacks import Targets
from shared.clock.rules.instants import find_upcoming
from shared.clock.rules.occurrences import Occurrence, OccurrenceKind, read_owner
from shared.clock.rules.schedules import KEY as KEY_RULE
from shared.clock.rules.schedules import (
    Definition,
    Schedule,
    ScheduleState,
    owners_of,
    read_labels,
    read_schedule_id,
    schedule_id,
)
from shared.clock.schedules import Accepted, Made, ScheduleFlow, Wanted, nothing_ahead
from shared.core.errors import Invalid, NotFound, Refused
from shared.core.instants import format_instant
from shared.runtime.cached import Coalescer
from shared.store import Store

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
DUE_INSTANTS = 50
_FIRST_WINDOW = timedelta(minutes=1)
_LAST_WINDOW = timedelta(days=1)
LOOKED_AT = 5_000
_MOST_SECONDS = int(_LAST_WINDOW.total_seconds())
_DUE_LIMITS = Checks({DueInstant: {"kind": OneOf(tuple(OccurrenceKind))}})
_WITHIN = Parameter(
    name="within",
    description="How many seconds to look ahead at most; by default a day.",
    schema={"type": "integer", "minimum": 1, "maximum": _MOST_SECONDS, "default": _MOST_SECONDS},
)
SEGMENTS = {
    "key": {"type": "string", "pattern": f"^{KEY_RULE.pattern}$", "description": "The key of the schedule."},
    "timestamp": {"type": "string", "format": "date-time", "description": "The instant, as it was asked for."},
}
_MADE = {HTTPStatus.CREATED: Shown, HTTPStatus.OK: Shown}
_route = partial(Route, segments=SEGMENTS)
T = TypeVar("T")


class SchedulesResource(Resource):
    def __init__(self, store: Store, flow: ScheduleFlow, targets: Targets, limits: ScheduleLimits) -> None:
        self._store = store
        self._limits = limits
        self._flow = flow
        self._targets = targets
        self._accept = Coalescer(flow.accept)

    @_route(
        "GET", SCHEDULES, summary="List the schedules of a namespace by key, or of all (`*`), without their instants.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[Shown]}, parameters=(*_FILTERS, NAMESPACES), paged=True,
    )  # fmt: skip
    async def list_schedules(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = paging.read_page(request, str)
        prefix = paging.first(request, "prefix")
        state = paging.read_choice(request, "state", ScheduleState, "state is one of")
        if _PREFIX.fullmatch(prefix) is None:
            raise Invalid("no key can begin so: a key has letters, digits and - _ . ~ :", field="prefix", value=prefix)
        labels = read_labels(",".join(request.query_params.getall("label", [])))
        namespace = namespaces_of(request)
        if not namespace and (prefix or state or labels):
            raise Invalid("a filter needs one namespace; * lists all schedules", field="namespace", value="*")
        schedules = await self._store.schedules.page(
            namespace, prefix=prefix, state=state, labels=labels, after=asked.after or "", limit=asked.limit
        )
        headers = paging.links(request, asked, schedules, lambda each: each.key if namespace else each.id)
        personal = sees_personal_data(request)
        shown = [show_schedule(each, with_namespace=not namespace, personal=personal) for each in schedules]
        return bodies.answer(shown, headers=headers)

    @_route(
        "GET", SCHEDULES + "/due", summary=f"Tell what of a namespace fires next: at most {DUE_INSTANTS} instants.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: DueInstants[Timestamp]}, parameters=(NAMESPACES, _WITHIN),
        limits=_DUE_LIMITS,
    )  # fmt: skip
    async def list_due_instants(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        rule = f"within is an integer from 1 to {_MOST_SECONDS} (seconds)"
        within = paging.read_integer(request, _WITHIN.name, most=_MOST_SECONDS, default=_MOST_SECONDS, rule=rule)
        return bodies.answer(await self._look_ahead(namespaces_of(request), timedelta(seconds=within)))

    @_route(
        "POST", SCHEDULES, summary="Make a schedule; what is there already with the same content stays as it is.",
        act="schedule.create", who=KNOWN,
        body=Body, limits=LIMITS, answers=_MADE, problems=(HTTPStatus.CONFLICT,), parameters=(KEY, CALLERS_NAMESPACE),
    )  # fmt: skip
    async def create_schedule(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        wanted = await self._read_wanted(request)
        used = idempotency_of(request, sameness(request, await request.body()))
        if used is None:
            return await self._answer_accepted(await self._make(wanted))
        # A schedule with nothing ahead cannot be made, so it does not use its key up.
        days = await find_days_of(self._store, wanted)
        is_ahead = lies_ahead(wanted.definition, wanted.key, await self._flow.now(), days)
        idempotency = self._store.idempotency
        first = await (idempotency.claim(used) if is_ahead else idempotency.recall(used))
        if first is not None and first.made:
            made = msgspec.json.decode(first.made, type=Made)
            return await self._answer_accepted(await self._flow.repeat(wanted, made))
        accepted = await self._make(wanted)
        schedule = accepted.schedule
        made = Made(schedule.generation, schedule.created_at, schedule.accepted_at)
        await idempotency.remember(used.key, msgspec.json.encode(made).decode())
        return await self._answer_accepted(accepted)

    @_route(
        "POST", SCHEDULES + "/preview", summary="Tell the next instants of a schedule that is not made.",
        act=UNRECORDED, who=KNOWN, body=Body, limits=LIMITS, answers={HTTPStatus.OK: SchedulePreview[Timestamp]},
    )  # fmt: skip
    async def preview_schedule(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        key, definition = definitions.read_preview(await request.body(), self._targets)
        if refusal := await self._limits.judge_job(definition.callback, caller_of(request)):
            raise refusal
        wanted = Wanted(caller_of(request).namespace, key, definition)
        for refusal in (await self._limits.judge_calendars([wanted])).values():
            raise refusal
        now, days = await self._flow.now(), await find_days_of(self._store, wanted)
        instants = planned_instants(definition, key, now, days)
        if not instants:
            raise nothing_ahead(definition)
        left_out = None if days is None else left_out_until(instants[-1], definition, key, now, days)
        return bodies.answer(SchedulePreview(tuple(map(format_instant, instants)), left_out))

    @_route(
        "GET", SCHEDULE, summary="Show a schedule, its next instants and its last outcomes.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: Shown}, problems=(HTTPStatus.NOT_FOUND,), parameters=(NAMESPACE,),
    )  # fmt: skip
    async def get_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        schedule = require(await self._store.schedules.get(id_of(request, key)), key)
        now = await self._flow.now()
        ahead, personal = await find_pending(self._store, schedule, now), sees_personal_data(request)
        outcomes = await self._store.outcomes.latest(schedule.owner, OUTCOMES)
        again = await self._store.occurrences.find_next_try(schedule.owner, schedule.generation, now=now)
        view = show_schedule(schedule, ahead=ahead, outcomes=outcomes, next_try=again, personal=personal)
        return bodies.answer(view)

    @_route(
        "PUT", SCHEDULE,
        summary="Make a schedule, or replace all that is pending of it; the same content changes nothing.",
        act="schedule.replace", who=KNOWN, body=Body, limits=LIMITS, answers=_MADE, parameters=(CALLERS_NAMESPACE,),
    )  # fmt: skip
    async def replace_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        return await self._answer_accepted(await self._flow.put(await self._read_wanted(request, key)))

    @_route(
        "DELETE", SCHEDULE, summary="Delete a schedule and all that is pending of it.",
        act="schedule.delete", who=OPERATE_NAMESPACE, answers={HTTPStatus.NO_CONTENT: None},
        problems=(HTTPStatus.NOT_FOUND,), parameters=(NAMESPACE,),
    )  # fmt: skip
    async def delete_schedule(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[None]:
        if not await self._flow.remove(id_of(request, key)):
            raise not_found(key)
        return bodies.empty()

    async def _read_wanted(self, request: Request[Any, Any, Any], key: str | None = None) -> Wanted:
        """The schedule that a request asks for, within the limits; `key` is the path's, if it has one."""
        namespace, caller = own_namespace(request), caller_of(request)
        key, definition = definitions.read(await request.body(), self._targets, key=key)
        wanted = Wanted(namespace, key, definition, caller.token_id)
        for refusal in (await self._limits.judge([wanted], caller)).values():
            raise refusal
        return wanted

    async def _make(self, wanted: Wanted) -> Accepted:
        # A caller does not wait for the long list of another one.
        together = len(wanted.definition.instants) <= TOGETHER
        answer = await self._accept(wanted) if together else (await self._flow.accept([wanted]))[0]
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def _answer_accepted(self, answer: Accepted) -> Response[bytes]:
        schedule = answer.schedule
        if answer.created or (answer.changed and schedule.definition.anchor is None):
            days = await find_days_of(self._store, schedule)
            ahead = planned_instants(schedule.definition, schedule.key, schedule.accepted_at, days)
        else:
            ahead = await find_pending(self._store, schedule, await self._flow.now())
        status = HTTPStatus.CREATED if answer.created else HTTPStatus.OK
        return bodies.answer(show_schedule(schedule, ahead=ahead, skipped=answer.skipped), status)

    async def _look_ahead(self, namespace: str, within: timedelta) -> DueInstants[str]:
        """At most `DUE_INSTANTS` instants that are due within `within`, of this namespace, or of all for `""`."""
        now, window = await self._flow.now(), min(_FIRST_WINDOW, within)
        owners = owners_of(namespace)
        while True:
            found = await self._store.occurrences.find_due(
                owners, before=now + window, look_at=LOOKED_AT, limit=DUE_INSTANTS
            )
            reached = await self._store.occurrences.find_nth_visible(LOOKED_AT, before=now + window)
            if reached is not None or len(found) >= DUE_INSTANTS or window >= within:
                until = found[-1].visible_at if len(found) >= DUE_INSTANTS else reached or now + window
                instants = await self._show_due(found)
                return DueInstants(as_of=format_instant(now), until=format_instant(until), instants=instants)
            window = min(2 * window, within)

    async def _show_due(self, found: Sequence[Occurrence]) -> tuple[DueInstant[str], ...]:
        """Leave out instants whose schedule was replaced, deleted or paused."""
        ids = {occurrence.id: read_owner(occurrence.owner).id for occurrence in found}
        active = await self._store.schedules.find_active(list(set(ids.values())))
        is_left = {each.id for each in found if active.get(ids[each.id]) == each.generation}
        return tuple(_due_instant(each) for each in found if each.id in is_left or each.kind is OccurrenceKind.ASKED)


async def find_pending(store: Store, schedule: Schedule, now: datetime) -> list[datetime]:
    is_list, is_anchored = schedule.definition.recurrence is None, schedule.definition.anchor is not None
    kind, after = (OccurrenceKind.ONCE, now) if is_list else (OccurrenceKind.SERIES, None)
    kind = OccurrenceKind.OFFSET if is_anchored else kind
    found = await store.occurrences.find_upcoming(
        schedule.owner, NEXT, generation=schedule.generation, kind=kind, after=after
    )
    return pending_instants(schedule, found, now, await find_days_of(store, schedule))


def id_of(request: Request[Any, Any, Any], key: str) -> str:
    return schedule_id(namespace_of(request), key)


def lies_ahead(definition: Definition, key: str, now: datetime, days: Days | None) -> bool:
    if definition.recurrence is None:
        return definition.instants[-1] > now
    return find_upcoming(definition, key, now, days) is not None


def require(found: T | None, key: str) -> T:
    if found is None:
        raise not_found(key)
    return found


def not_found(key: str) -> NotFound:
    return NotFound("there is no schedule with this key", field="key", value=key)


def sameness(request: Request[Any, Any, Any], content: bytes) -> Sameness:
    """The parts that a repeated request must have in common with the first: route, namespace unless it is the caller's
    own, and body."""
    own, named = caller_of(request).namespace, fold_namespace(paging.first(request, NAMESPACE.name))
    return f"{request.method} {request.url.path}", "" if named == own else named, content


def _due_instant(occurrence: Occurrence) -> DueInstant[str]:
    namespace, key = read_schedule_id(read_owner(occurrence.owner).id)
    return DueInstant(
        namespace=namespace,
        key=key,
        due=format_instant(occurrence.due),
        at=format_instant(occurrence.fires_at),
        attempts=occurrence.attempts,
        kind=occurrence.kind,
    )
