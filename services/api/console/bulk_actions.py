"""`/bulk-actions`: one act on all that a filter matches.

The maker of one needs the role of an operator over all that it may touch: over the app or the namespace that the filter
names, or everywhere. Its maker sees it, and so does every caller with a role over the same.
"""

from functools import partial
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec.structs import replace

from services.api.console.bulk_action_view import (
    BulkActionBody,
    BulkActionView,
    BulkFiguresView,
    body_decoder,
    bulk_action_view,
    filter_of,
    filter_view,
)
from services.api.console.bulk_drafts import BulkDrafts
from services.api.http import paging, wire
from services.api.http.dry_runs import is_dry_run
from services.api.http.idempotency import idempotency_of
from services.api.http.identity import caller_of
from services.api.http.rights import KNOWN
from services.api.http.routes import DRY_RUN, Parameter, Resource, Route
from services.api.http.strict_bodies import decode_body
from shared.domain.accounts.callers import Caller
from shared.domain.accounts.roles import EVERYWHERE, Role, read_namespace
from shared.domain.console.audit import REASON_CHARACTERS
from shared.domain.console.bulk_actions import (
    BulkAct,
    BulkAction,
    BulkFilter,
    check_filter,
    may_act,
    role_over,
)
from shared.domain.errors import Conflict, Forbidden, Invalid, NotFound
from shared.domain.idempotency import Idempotency
from shared.domain.ids import read_uuid
from shared.flow.console.bulk import BulkFlow
from shared.flow.console.figures import sum_stopped
from shared.flow.jobs.figures import MoveFigures
from shared.store import Store

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
    """The routes of bulk actions."""

    def __init__(self, store: Store, flow: BulkFlow, drafts: BulkDrafts) -> None:
        self._store = store
        self._flow = flow
        self._drafts = drafts

    @_route(
        "GET", BULK_ACTIONS,
        summary="List the bulk actions that the caller made, the newest first; for whoever has a role everywhere, all.",
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
        return wire.answer(views, headers=headers)

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
            return wire.answer(await self._preview(body.act, filter))
        used = idempotency_of(request, ("POST " + BULK_ACTIONS, "", content))
        if used is not None and (earlier := await self._find_earlier(used)):
            return wire.answer(bulk_action_view(earlier), HTTPStatus.ACCEPTED)
        reason = _read_reason(body)
        action = await self._drafts.draft(body.act, filter, caller, reason=reason, at_most=body.at_most)
        if used is not None:
            claimed = await self._store.idempotency.claim(used, made=action.id)
            action = replace(action, id=claimed.made)
        return wire.answer(bulk_action_view(await self._drafts.start(action)), HTTPStatus.ACCEPTED)

    @_route(
        "GET", BULK_ACTION, summary="Show a bulk action and how far it is.",
        answers={HTTPStatus.OK: BulkActionView}, problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def get_bulk_action(self, request: Request[Any, Any, Any], action_id: FromPath[str]) -> Response[bytes]:
        caller = caller_of(request)
        action = await self._find(caller, action_id)
        return wire.answer(bulk_action_view(action, personal=_sees_all(caller, action)))

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
        return wire.answer(bulk_action_view(cancelled))

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
