"""Drafts: a request becomes a bulk action, which is then stored and noted for the audit."""

from services.api.console.bulk_action_view import filter_view
from services.api.http.acts import current_record, note_change
from services.api.http.ids import fresh_id
from shared.domain.accounts.callers import Caller
from shared.domain.console.bulk_actions import OPEN_AT_ONCE, BulkAct, BulkAction, BulkFilter
from shared.domain.errors import Conflict
from shared.domain.instants import EPOCH
from shared.flow.console.bulk import BulkFlow
from shared.runtime.clock import Clock
from shared.store import Store


class BulkDrafts:
    """Drafts bulk actions, and starts them."""

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
        """Start the action, once the audit tells what it is about."""
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
