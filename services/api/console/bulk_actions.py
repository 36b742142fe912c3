"""`/bulk-actions`: one act on all that a filter matches. A request becomes an action, which is stored and noted for the
audit; workers do it in pages.

The maker of one needs the role of an operator over all that it may touch: over the app or the namespace that the
filter names, or over everything.
"""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from services.api.http import bodies, paging
from services.api.http.acts import current_record, note_change
from services.api.http.bodies import Timestamp, decode_body, hide
from services.api.http.errors import fresh_id
from services.api.http.identity import caller_of
from services.api.http.paging import idempotency_of, is_dry_run
from services.api.http.rights import KNOWN
from services.api.http.routes import DRY_RUN, Parameter, Resource, Route
from shared.accounts.rules.apps import EVERYWHERE, Role, read_namespace
from shared.accounts.rules.callers import Caller
from shared.clock.rules.schedules import ScheduleState
from shared.console.bulk import BulkFlow, sum_stopped
from shared.console.rules.audit import REASON_CHARACTERS
from shared.console.rules.bulk_actions import (
    OPEN_AT_ONCE,
    BulkAct,
    BulkAction,
    BulkFilter,
    BulkState,
    check_filter,
    may_act,
    role_over,
)
from shared.core.errors import Conflict, Forbidden, Invalid, NotFound
from shared.core.ids import Idempotency, read_uuid
from shared.core.instants import EPOCH, format_instant, format_maybe
from shared.jobs.rules.jobs import JobStatus
from shared.jobs.watch import MoveFigures
from shared.runtime.clock import Clock
from shared.store import Store

# An empty text is refused: a filter that was meant must not match everything.
_Text = Annotated[str, Meta(min_length=1)] | UnsetType


class BulkFilterBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which things. Dead letters: of a `namespace` (`*` for all), a `key`, an `error`. Schedules: of a `namespace`,
    with keys that begin with `prefix`, in a `state`, with a `label` (`team:billing`; of several, joined by commas, all
    are needed); only those that fire are paused, and only paused ones resumed.
    Jobs: of the app with this id, in a `status`, with exactly these `template` names, made by the caller that `by`
    names. Without a namespace, the caller's own. At least one of these is needed."""

    namespace: _Text = UNSET
    key: _Text = UNSET
    error: _Text = UNSET
    prefix: _Text = UNSET
    state: ScheduleState | UnsetType = UNSET
    label: _Text = UNSET
    app: _Text = UNSET
    status: JobStatus | UnsetType = UNSET
    template: _Text = UNSET
    by: _Text = UNSET


class BulkActionBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An act on all things that the filter matches, and its reason."""

    act: BulkAct
    filter: BulkFilterBody
    reason: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 1_000})]
    at_most: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="If more things match, nothing is done: 409 with the figure."),
    ] = None


class BulkFiguresView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The effect of a bulk action. `matched` ends at a million. For stopped jobs, `devicesNotReached` is the number of
    devices that would get nothing, as far as the jobs are planned; `unplanned` jobs are not. Both are `null` for other
    acts, and for over 500 jobs."""

    act: BulkAct
    filter: BulkFilterBody
    matched: int
    devices_not_reached: int | None
    unplanned: int | None


class BulkFailureView(Struct, frozen=True):
    """A thing that could not be acted on, and why."""

    id: str
    reason: str


class BulkActionView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A bulk action. `matched` were there when it was made; `done`, `skipped` (there was nothing to do) and `failed`
    are what workers have told. They are a page short where a worker died in the middle of one. `failures` has at most
    100. `redacted` says that the filter's error and the failures' reasons are left out: the caller is a viewer."""

    id: str
    act: BulkAct
    filter: BulkFilterBody
    reason: str
    state: BulkState
    matched: int
    done: int
    skipped: int
    failed: int
    failures: list[BulkFailureView]
    failure: str
    created_by: str
    created_at: Timestamp
    changed_at: Timestamp | None
    ended_at: Timestamp | None
    cancelled_by: str
    redacted: bool = False


body_decoder = msgspec.json.Decoder(BulkActionBody)


def filter_of(body: BulkFilterBody) -> BulkFilter:
    return BulkFilter(**{name: value for name, value in asdict(body).items() if value is not UNSET})


def filter_view(filter: BulkFilter) -> BulkFilterBody:
    return msgspec.convert({name: value for name, value in asdict(filter).items() if value}, BulkFilterBody)


def bulk_action_view(action: BulkAction, *, personal: bool = True) -> BulkActionView:
    """A bulk action as it is shown, without personal data unless `personal`: an error may hold what a target got."""
    filter = action.filter if personal else replace(action.filter, error=hide(action.filter.error))
    return BulkActionView(
        id=action.id,
        act=action.act,
        filter=filter_view(filter),
        reason=action.reason,
        state=action.state,
        matched=action.matched,
        done=action.done,
        skipped=action.skipped,
        failed=action.failed,
        failures=[
            BulkFailureView(failure.id, failure.reason if personal else hide(failure.reason))
            for failure in action.failures
        ],
        failure=action.failure,
        created_by=action.created_by,
        created_at=format_instant(action.created_at),
        changed_at=format_maybe(action.changed_at),
        ended_at=format_maybe(action.ended_at),
        cancelled_by=action.cancelled_by,
        redacted=not personal,
    )


class BulkDrafts:
    def __init__(self, store: Store, flow: BulkFlow, clock: Clock) -> None:
        self._store = store
        self._flow = flow
        self._clock = clock

    async def draft(
        self, act: BulkAct, filter: BulkFilter, caller: Caller, *, reason: str, at_most: int | None = None
    ) -> BulkAction:
        """The action. Raises `Conflict` where more match than its maker expects, or too many are underway."""
        if await self._store.bulk_actions.count_open(caller.namespace, most=OPEN_AT_ONCE) == OPEN_AT_ONCE:
            raise Conflict(f"{OPEN_AT_ONCE} bulk actions of yours are underway: wait for one of them, or cancel it")
        matched = await self._flow.count(act, filter)
        if at_most is not None and matched > at_most:
            raise Conflict(f"{matched:,} match, which is more than {at_most:,}", field="atMost", value=matched)
        now, now_ns = await self._flow.now(), self._clock.now_ns()
        return BulkAction(
            id=fresh_id(now_ns),
            act=act,
            filter=filter,
            reason=reason,
            matched=matched,
            created_by=caller.name,
            created_at=now,
            created_ns=now_ns,
            namespace=caller.namespace,
            token_id=caller.token_id,
            audit_id=current_record(),
            leased_until=EPOCH,
        )

    async def start(self, action: BulkAction) -> BulkAction:
        filter = action.filter
        await self._store.audit.describe(
            action.audit_id, reason=action.reason, count=action.matched, app_id=filter.app, namespace=filter.namespace
        )
        note_change(None, {"act": action.act, "filter": filter_view(filter)})
        return await self._flow.start(action)

    async def find_underway(self, act: BulkAct, filter: BulkFilter, caller: Caller) -> BulkAction | None:
        """An action of this caller that does the same and is not over."""
        for action in await self._store.bulk_actions.list_open(caller.namespace, limit=OPEN_AT_ONCE):
            if (action.act, action.filter, action.token_id) == (act, filter, caller.token_id):
                return action
        return None


BULK_ACTIONS = "/bulk-actions"
BULK_ACTION = "/bulk-actions/{action_id:str}"
KEY = Parameter(
    name="Idempotency-Key",
    description="Kept for 24 hours. A repeated request with the same key is answered with what the first one made.",
    schema={"type": "string", "minLength": 1, "maxLength": 255},
    place="header",
)
_ACTION_ID = {"type": "string", "format": "uuid", "description": "The id of the bulk action."}
_route = partial(Route, who=KNOWN, segments={"action_id": _ACTION_ID})


class BulkActionsResource(Resource):
    def __init__(self, store: Store, flow: BulkFlow, drafts: BulkDrafts) -> None:
        self._store = store
        self._flow = flow
        self._drafts = drafts

    @_route(
        "GET", BULK_ACTIONS,
        summary="List the caller's bulk actions, the newest first; a caller with a role everywhere sees all.",
        answers={HTTPStatus.OK: list[BulkActionView]}, paged=True,
    )  # fmt: skip
    async def list_bulk_actions(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked, caller = paging.read_page(request, str), caller_of(request)
        everywhere = caller.role_over_namespace(EVERYWHERE) is not None
        namespace = "" if everywhere else caller.namespace
        found = await self._store.bulk_actions.page(namespace, before=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, found, lambda action: action.id)
        shown = [action for action in found if _is_shown(caller, action)]
        views = [bulk_action_view(action, personal=_sees_all(caller, action)) for action in shown]
        return bodies.answer(views, headers=headers)

    @_route(
        "POST", BULK_ACTIONS, summary="Do something to all that a filter matches; workers do it, page by page.",
        act="bulk-action.create", body=BulkActionBody,
        answers={HTTPStatus.ACCEPTED: BulkActionView, HTTPStatus.OK: BulkFiguresView},
        problems=(HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT), parameters=(DRY_RUN, KEY),
    )  # fmt: skip
    async def create_bulk_action(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        caller, content = caller_of(request), await request.body()
        body = decode_body(content, body_decoder)
        filter = _read_filter(body, caller)
        if is_dry_run(request):
            return bodies.answer(await self._preview(body.act, filter))
        used = idempotency_of(request, ("POST " + BULK_ACTIONS, "", content))
        if used is not None and (earlier := await self._find_earlier(used)):
            return bodies.answer(bulk_action_view(earlier), HTTPStatus.ACCEPTED)
        reason = _read_reason(body)
        action = await self._drafts.draft(body.act, filter, caller, reason=reason, at_most=body.at_most)
        if used is not None:
            claimed = await self._store.idempotency.claim(used, made=action.id)
            action = replace(action, id=claimed.made)
        return bodies.answer(bulk_action_view(await self._drafts.start(action)), HTTPStatus.ACCEPTED)

    @_route(
        "GET", BULK_ACTION, summary="Show a bulk action and how far it is.",
        answers={HTTPStatus.OK: BulkActionView}, problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def get_bulk_action(self, request: Request[Any, Any, Any], action_id: FromPath[str]) -> Response[bytes]:
        caller = caller_of(request)
        action = await self._find(caller, action_id)
        return bodies.answer(bulk_action_view(action, personal=_sees_all(caller, action)))

    @_route(
        "POST", BULK_ACTION + "/cancel", summary="Leave what is not done yet; what is done stays done.",
        act="bulk-action.cancel", answers={HTTPStatus.OK: BulkActionView},
        problems=(HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def cancel_bulk_action(self, request: Request[Any, Any, Any], action_id: FromPath[str]) -> Response[bytes]:
        caller = caller_of(request)
        action = await self._find(caller, action_id)
        if not (_is_maker(caller, action) or _sees_all(caller, action)):
            raise Forbidden("this needs the role operator over what the action is about")
        cancelled = await self._flow.cancel(action.id, by=caller.name)
        if cancelled is None:
            raise Conflict("this action is over", field="state", value=action.state.value)
        return bodies.answer(bulk_action_view(cancelled))

    async def _preview(self, act: BulkAct, filter: BulkFilter) -> BulkFiguresView:
        matched = await self._flow.count(act, filter)
        stops = act is BulkAct.STOP_JOBS
        none = MoveFigures(matched, None, None)
        told = await sum_stopped(self._store, filter, matched) if stops else none
        return BulkFiguresView(
            act=act,
            filter=filter_view(filter),
            matched=matched,
            devices_not_reached=told.devices_not_reached,
            unplanned=told.unplanned,
        )

    async def _find_earlier(self, used: Idempotency) -> BulkAction | None:
        first = await self._store.idempotency.recall(used)
        return None if first is None else await self._store.bulk_actions.get(first.made)

    async def _find(self, caller: Caller, action_id: str) -> BulkAction:
        action = await self._store.bulk_actions.get(read_uuid(action_id, field="actionId"))
        if action is None or not _is_shown(caller, action):
            raise NotFound("there is no bulk action with this id", field="actionId", value=action_id)
        return action


def _is_shown(caller: Caller, action: BulkAction) -> bool:
    return _is_maker(caller, action) or role_over(caller, action.act, action.filter) is not None


def _is_maker(caller: Caller, action: BulkAction) -> bool:
    """Tokens may share a namespace, and each has its own rights."""
    return (action.namespace, action.token_id) == (caller.namespace, caller.token_id)


def _sees_all(caller: Caller, action: BulkAction) -> bool:
    """Whether the caller sees all of it: an operator over its subject, by present rights."""
    held = role_over(caller, action.act, action.filter)
    return held is not None and held.covers(Role.OPERATOR)


def _read_filter(body: BulkActionBody, caller: Caller) -> BulkFilter:
    """The filter, with the caller's own namespace if it names none. Raises `Invalid`, and `Forbidden` if the caller may
    not act on everything that it may match."""
    filter = filter_of(body.filter)
    check_filter(body.act, filter)
    if filter.app:
        filter = replace(filter, app=read_uuid(filter.app, field="filter.app"))
    elif body.act.kind != "job":
        filter = replace(filter, namespace=filter.namespace or caller.namespace)
        if filter.namespace != EVERYWHERE or body.act.kind != "dead-letter":
            filter = replace(filter, namespace=read_namespace(filter.namespace, field="filter.namespace"))
    if not may_act(caller, body.act, filter):
        over = "everywhere" if body.act.kind == "job" and not filter.app else "over what the filter names"
        raise Forbidden(f"this needs the role operator {over}", field="filter")
    return filter


def _read_reason(body: BulkActionBody) -> str:
    reason = body.reason.strip()
    if not 1 <= len(reason) <= REASON_CHARACTERS:
        raise Invalid(f"a reason is needed, of at most {REASON_CHARACTERS:,} characters", field="reason")
    return reason
