"""Bulk actions: requests make them, workers do them in pages, upkeep finds lost ones.

    store the action ──> tell workers ──> take it ──> [ read a page ──> act on it ──> count it, by compare-and-set ]*

If a worker dies, its lease ends and its page stays uncounted. Upkeep tells workers again, and the next one begins that
page anew: each act is safe to repeat. A message is worth at most `MESSAGE_SECONDS` of work, so that actions take turns
and no message is held for long. Before each page the maker is looked up: an action whose maker was revoked, or has lost
the role, ends.
"""

import time
from collections.abc import Mapping
from datetime import datetime, timedelta

import structlog

from shared.broker import Broker
from shared.domain.accounts.callers import Caller, token_caller, user_caller, user_namespace
from shared.domain.accounts.roles import fold_email
from shared.domain.console.bulk_actions import BulkAct, BulkAction, BulkFilter, BulkState, BulkTally, may_act
from shared.domain.console.tasks import RunBulkAction
from shared.domain.errors import Unavailable
from shared.domain.tasks import encode
from shared.flow.console.bulk_things import BulkThings
from shared.flow.time import DatabaseTime
from shared.runtime.faults import fault
from shared.runtime.loops import Swept
from shared.runtime.metrics import BULK_THINGS
from shared.runtime.tracing import current_trace
from shared.store import Store
from shared.store.clock.occurrences import fresh_token

LEASE = timedelta(seconds=15)
MESSAGE_SECONDS = 60.0
COUNTED = 1_000_000
"""Counts end here: this many, or more."""

_LOST_AT_ONCE = 100
_TRUSTED_SHARE = 0.7

log = structlog.get_logger(__name__)


class BulkFlow:
    """Makes and does bulk actions."""

    def __init__(self, store: Store, broker: Broker, time: DatabaseTime, things: Mapping[str, BulkThings]) -> None:
        self._store = store
        self._broker = broker
        self._time = time
        self._things = things

    async def now(self) -> datetime:
        return await self._time.now()

    async def count(self, act: BulkAct, filter: BulkFilter) -> int:
        """The number of things that match now; `COUNTED` if there are more."""
        return await self._things[act.kind].count(act, filter, before=await self._time.now(), most=COUNTED)

    async def start(self, action: BulkAction) -> BulkAction:
        """Store an action, unless it exists, and tell workers. If the broker is away, upkeep finds it."""
        stored = await self._store.bulk_actions.add(action)
        await fault("bulk.after_insert")
        try:
            await self._publish(stored.id)
        except Unavailable as error:
            log.warning("bulk action left to upkeep", action=stored.id, reason=str(error))
        return stored

    async def cancel(self, action_id: str, *, by: str) -> BulkAction | None:
        """Cancel an action; `None` if it is over or unknown."""
        return await self._store.bulk_actions.cancel(action_id, by=by, at=await self._time.now())

    async def take(self, action_id: str) -> "BulkTurn | None":
        """Take the action; `None` if another worker has it or it is over."""
        now = await self._time.now()
        action = await self._store.bulk_actions.take(action_id, fresh_token(), now=now, leased_until=now + LEASE)
        return None if action is None else BulkTurn(self, action)

    async def do_page(self, action: BulkAction, *, until: float) -> BulkAction | None:
        """Do the next page of an action held until `until` (monotonic); `None` if it is over now or the hold was lost.
        Things not begun by then are left, because another worker may hold the action or a caller may have cancelled
        it."""
        if not await self._may_go_on(action):
            await self.end(action, BulkState.FAILED, failure="its maker may not do this any more")
            return None
        things = self._things[action.act.kind]
        page = await things.read(action)
        tally = await things.do(action, page.things, until=until) if page.things else BulkTally()
        await fault("bulk.after_page")
        leased_until = await self._time.now() + LEASE
        position = page.position or action.position
        moved = await self._store.bulk_actions.advance(action, tally, position=position, leased_until=leased_until)
        if moved is None:
            return None
        await self._store.audit.count(action.audit_id, moved.done)
        counts = {"done": tally.done, "skipped": tally.skipped, "failed": len(tally.failures)}
        for outcome, count in counts.items():
            BULK_THINGS.labels(action.act, outcome).inc(count)
        if moved.is_over:
            return None
        if not page.position:
            await self.end(moved, BulkState.DONE)
            return None
        return moved

    async def end(self, action: BulkAction, to: BulkState, *, failure: str = "") -> None:
        """End a held action, and note in the audit how much was done."""
        ended = await self._store.bulk_actions.end(action, to, at=await self._time.now(), failure=failure)
        if ended is not None:
            await self._store.audit.count(ended.audit_id, ended.done)
            log.info("bulk action ended", action=ended.id, act=ended.act, state=ended.state, done=ended.done)

    async def give_up(self, action_id: str, reason: str) -> None:
        """End an action after an internal error, whichever worker holds it."""
        await self.take(action_id)
        ended = await self._store.bulk_actions.fail(action_id, at=await self._time.now(), failure=reason)
        if ended is not None:
            log.error("bulk action given up", action=ended.id, act=ended.act, reason=reason)

    async def hand_over(self, action: BulkAction) -> None:
        await self._store.bulk_actions.release(action)
        await self._publish(action.id)

    async def release(self, action: BulkAction) -> None:
        await self._store.bulk_actions.release(action)

    async def requeue_lost(self, patience: timedelta) -> Swept:
        """Tell workers again about actions that no worker has held for `patience`."""
        now = await self._time.now()
        before, told = now - patience, 0
        for action_id in await self._store.bulk_actions.find_lost(before=before, limit=_LOST_AT_ONCE):
            if await self._store.bulk_actions.await_turn(action_id, before=before, now=now):
                await self._publish(action_id)
                told += 1
        return Swept(retried=told)

    async def _may_go_on(self, action: BulkAction) -> bool:
        maker = await self._find_maker(action)
        return maker is not None and may_act(maker, action.act, action.filter)

    async def _find_maker(self, action: BulkAction) -> Caller | None:
        """The maker of the action with the present roles; `None` if the user or token is gone."""
        if action.token_id:
            token = await self._store.tokens.get(action.token_id)
            expired = token is not None and token.why_refused(token.digest, await self._time.now())
            return None if token is None or expired else token_caller(token)
        email = action.namespace.removeprefix(user_namespace(""))
        user = (await self._store.users.with_emails([email])).get(fold_email(email))
        return None if user is None else user_caller(user)

    async def _publish(self, action_id: str) -> None:
        task = RunBulkAction(action_id=action_id, trace=current_trace())
        await self._broker.publish(task.queue, encode(task))


class BulkTurn:
    """A worker's turn at an action that it holds: page after page, until the action or the turn is over."""

    def __init__(self, flow: BulkFlow, action: BulkAction) -> None:
        self.action = action
        self._flow = flow
        self._ends = time.monotonic() + MESSAGE_SECONDS
        self._held_until = _trusted_until()

    async def work(self) -> bool:
        """Do one page; `False` if this turn has no more to do. The rest gets another message.

        Raises:
            Unavailable: a server is away. The action is released, so that this message may try again.
        """
        try:
            moved = await self._flow.do_page(self.action, until=self._held_until)
        except Unavailable:
            await self._flow.release(self.action)
            raise
        if moved is None:
            return False
        self.action, self._held_until = moved, _trusted_until()
        if time.monotonic() < self._ends:
            return True
        await self.hand_over()
        return False

    async def hand_over(self) -> None:
        await self._flow.hand_over(self.action)


def _trusted_until() -> float:
    """A hold that begins now is trusted until then: a process that was frozen sees that it may be over."""
    return time.monotonic() + LEASE.total_seconds() * _TRUSTED_SHARE
