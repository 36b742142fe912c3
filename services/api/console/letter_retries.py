"""`POST /dead-letters/retry`: all dead letters of a namespace or of a key, tried again. Some are dealt with at once; of
many, a bulk action is made, which workers do."""

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from msgspec import UNSET, Meta, Struct, UnsetType

from services.api.accounts.apps import NAMESPACE, namespace_of
from services.api.clock.dead_letters import LETTERS
from services.api.console.bulk_actions import BULK_ACTIONS, BulkDrafts
from services.api.http import bodies
from services.api.http.acts import reason_of
from services.api.http.bodies import decode_body
from services.api.http.identity import caller_of
from services.api.http.rights import OPERATE_NAMESPACE
from services.api.http.routes import Resource, Route
from shared.accounts.rules.callers import Caller
from shared.clock.rules.outcomes import place_of
from shared.clock.schedules import ScheduleFlow
from shared.console.rules.bulk_actions import BulkAct, BulkAction, BulkFilter
from shared.store import Store

RETRIED_AT_ONCE = 500
_REASON = f"POST {LETTERS}/retry"


class RetryFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters: those of one key, or, without a key, all of the namespace's."""

    key: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET


class RetriedView(Struct, frozen=True):
    """How many are tried again. Those whose schedules are gone stay, and so do those that are being attempted."""

    retried: int


class RetryingView(RetriedView, frozen=True, rename="camel"):
    """How many there are to be tried again, by the bulk action of this id. Those whose schedules are gone stay, and are
    among its failures."""

    bulk_action: str


_filter_decoder = msgspec.json.Decoder(RetryFilter)


class LetterRetriesResource(Resource):
    def __init__(self, store: Store, flow: ScheduleFlow, drafts: BulkDrafts) -> None:
        self._store = store
        self._flow = flow
        self._drafts = drafts

    @Route(
        "POST", LETTERS + "/retry",
        summary=f"Try all dead letters of a namespace again, or those of one key; over {RETRIED_AT_ONCE} by a bulk "
        "action, which `Location` names.",
        act="dead-letter.retry-many", who=OPERATE_NAMESPACE, body=RetryFilter, body_required=False,
        answers={HTTPStatus.OK: RetriedView, HTTPStatus.ACCEPTED: RetryingView},
        problems=(HTTPStatus.CONFLICT,), parameters=(NAMESPACE,),
    )  # fmt: skip
    async def retry_all_dead_letters(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        namespace, content = namespace_of(request), await request.body()
        wanted = decode_body(content, _filter_decoder) if content.strip() else RetryFilter()
        filter = BulkFilter(namespace=namespace, key="" if wanted.key is UNSET else wanted.key)
        if await self._count_some(filter) <= RETRIED_AT_ONCE:
            return bodies.answer(RetriedView(await self._retry_now(filter)))
        action = await self._retry_later(filter, caller_of(request), reason_of(request))
        headers = {"location": f"{BULK_ACTIONS}/{action.id}"}
        return bodies.answer(RetryingView(action.matched, action.id), HTTPStatus.ACCEPTED, headers)

    async def _count_some(self, filter: BulkFilter) -> int:
        now, most = await self._flow.now(), RETRIED_AT_ONCE + 1
        return await self._store.dead_letters.count(filter.namespace, key=filter.key, before=now, most=most)

    async def _retry_now(self, filter: BulkFilter) -> int:
        retried, place = 0, None
        while True:
            letters = await self._store.dead_letters.page(
                filter.namespace, key=filter.key, before=place, limit=RETRIED_AT_ONCE
            )
            retried += len((await self._flow.retry(letters)).again) if letters else 0
            if not letters.more:
                return retried
            place = place_of(letters[-1])

    async def _retry_later(self, filter: BulkFilter, caller: Caller, reason: str) -> BulkAction:
        """The bulk action. A caller that repeats the request, as clients do after a lost answer, gets the one that is
        underway, unless another letter has died since."""
        act = BulkAct.RETRY_LETTERS
        underway = await self._drafts.find_underway(act, filter, caller)
        if underway is not None and not await self._has_died(filter, since=underway.created_at):
            return underway
        return await self._drafts.start(await self._drafts.draft(act, filter, caller, reason=reason or _REASON))

    async def _has_died(self, filter: BulkFilter, *, since: datetime) -> bool:
        newest = await self._store.dead_letters.page(filter.namespace, key=filter.key, limit=1)
        return bool(newest) and newest[0].died_at > since
