"""Bulk actions: requests make them, workers do them in pages, upkeep finds lost ones.

    store the action ──> tell workers ──> take it ──> [ read a page ──> act on it ──> count it, by compare-and-set ]*

If a worker dies, its lease ends and its page stays uncounted. Upkeep tells workers again, and the next one begins
that page anew: each act is safe to repeat. A message is worth at most `MESSAGE_SECONDS` of work, so that actions
take turns and no message is held for long. Before each page the maker is looked up: an action whose maker was
revoked, or has lost the role, ends.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

import msgspec
import structlog
from msgspec import Struct

from shared.accounts.rules.apps import EVERYWHERE, fold_email
from shared.accounts.rules.callers import Caller, token_caller, user_caller, user_namespace
from shared.clock.rules.outcomes import LetterPlace, place_of
from shared.clock.rules.schedules import Schedule, ScheduleState, read_labels
from shared.clock.schedules import ScheduleFlow
from shared.clock.store_occurrences import fresh_token
from shared.console.rules.bulk_actions import (
    BulkAct,
    BulkAction,
    BulkFailure,
    BulkFilter,
    BulkState,
    BulkTally,
    RunBulkAction,
    may_act,
)
from shared.core.errors import Refused, Unavailable
from shared.core.tasks import encode
from shared.drivers.rabbitmq import Broker
from shared.jobs.moves import JobFlow
from shared.jobs.rules.events import Doer
from shared.jobs.rules.jobs import PAUSABLE, RESUMABLE, STOPPABLE, Job, JobStatus
from shared.jobs.watch import MoveFigures, sum_unsent
from shared.runtime.faults import fault
from shared.runtime.loops import Swept
from shared.runtime.metrics import BULK_THINGS
from shared.runtime.tracing import current_trace
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)
AT_ONCE = 16


class BulkPage(Struct, frozen=True):
    """Some things, and the position of the next page; `""` after the last."""

    things: Sequence[Any]
    position: str


class BulkThings(Protocol):
    async def count(self, act: BulkAct, filter: BulkFilter, *, before: datetime, most: int) -> int:
        """The number of matching things made before `before`; `most` if there are more."""

    async def read(self, action: BulkAction) -> BulkPage:
        """The page at the action's position."""

    async def do(self, action: BulkAction, things: Sequence[Any], *, until: float) -> BulkTally:
        """Act on these things, and begin none after `until` (monotonic)."""


class BulkLetters:
    PAGE = 500

    def __init__(self, store: Store, flow: ScheduleFlow) -> None:
        self._store = store
        self._flow = flow

    async def count(self, act: BulkAct, filter: BulkFilter, *, before: datetime, most: int) -> int:
        namespace = _namespace(filter)
        return await self._store.dead_letters.count(
            namespace, key=filter.key, error=filter.error, before=before, most=most
        )

    async def read(self, action: BulkAction) -> BulkPage:
        filter, text = action.filter, action.position
        place = msgspec.json.decode(text, type=LetterPlace) if text else LetterPlace(action.created_at, "")
        letters = await self._store.dead_letters.page(
            _namespace(filter), key=filter.key, error=filter.error, before=place, limit=self.PAGE
        )
        return BulkPage(letters, msgspec.json.encode(place_of(letters[-1])).decode() if letters.more else "")

    async def do(self, action: BulkAction, things: Sequence[Any], *, until: float) -> BulkTally:
        _check_held(until)
        if action.act is BulkAct.DISCARD_LETTERS:
            done = await self._store.dead_letters.remove(things)
            return BulkTally(done=done, skipped=len(things) - done)
        retried = await self._flow.retry(things)
        reasons = dict.fromkeys((letter.id for letter in things), "its schedule is gone: it can only be discarded")
        reasons |= dict.fromkeys(retried.underway, "it was being attempted just then: try it again")
        failures = tuple(BulkFailure(id, reason) for id, reason in reasons.items() if id not in set(retried.again))
        return BulkTally(done=len(retried.again), failures=failures)


class BulkSchedules:
    """Schedules, by key: active ones to pause, paused ones to resume."""

    PAGE = 200

    def __init__(self, store: Store, flow: ScheduleFlow) -> None:
        self._store = store
        self._flow = flow

    async def count(self, act: BulkAct, filter: BulkFilter, *, before: datetime, most: int) -> int:
        state = _state(act, filter)
        labels = read_labels(filter.label)
        return await self._store.schedules.count(
            filter.namespace, prefix=filter.prefix, state=state, labels=labels, most=most
        )

    async def read(self, action: BulkAction) -> BulkPage:
        filter, state = action.filter, _state(action.act, action.filter)
        labels, after = read_labels(filter.label), action.position
        page = await self._store.schedules.page(
            filter.namespace, prefix=filter.prefix, state=state, labels=labels, after=after, limit=self.PAGE
        )
        earlier = [schedule for schedule in page if schedule.created_at < action.created_at]
        return BulkPage(earlier, page[-1].key if page.more else "")

    async def do(self, action: BulkAction, things: Sequence[Any], *, until: float) -> BulkTally:
        moves: dict[BulkAct, Callable[[Schedule], Awaitable[bool]]] = {
            BulkAct.PAUSE_SCHEDULES: self._pause,
            BulkAct.RESUME_SCHEDULES: partial(self._resume, action=action),
            BulkAct.DELETE_SCHEDULES: self._remove,
        }
        return await _each(moves[action.act], things, lambda schedule: str(schedule.key), until=until)

    async def _pause(self, schedule: Schedule) -> bool:
        return await self._flow.pause(schedule.id) is not None

    async def _resume(self, schedule: Schedule, *, action: BulkAction) -> bool:
        if schedule.namespace != action.namespace or action.token_id:
            # Otherwise a schedule that was paused because its caller was revoked would be paused again.
            await self._store.revocations.spare(schedule.namespace, schedule.id, token_id=action.token_id)
        return await self._flow.resume(schedule.id) is not None

    async def _remove(self, schedule: Schedule) -> bool:
        return await self._flow.remove(schedule.id)


class BulkJobs:
    PAGE = 50

    def __init__(self, store: Store, flow: JobFlow) -> None:
        self._store = store
        self._flow = flow

    async def count(self, act: BulkAct, filter: BulkFilter, *, before: datetime, most: int) -> int:
        return await self._store.bulk_jobs.count(statuses_for(act, filter), filter, most=most)

    async def read(self, action: BulkAction) -> BulkPage:
        filter, before = action.filter, action.created_ns + 1
        keys = await self._store.bulk_jobs.keys(
            statuses_for(action.act, filter), filter, before=before, after=action.position, limit=self.PAGE
        )
        return BulkPage(keys, keys[-1] if keys.more else "")

    async def do(self, action: BulkAction, things: Sequence[Any], *, until: float) -> BulkTally:
        maker = Doer("token" if action.token_id else "user", action.created_by)
        moves: dict[BulkAct, Callable[[str], Awaitable[Job | None]]] = {
            BulkAct.PAUSE_JOBS: partial(self._flow.pause, by=maker),
            BulkAct.RESUME_JOBS: partial(self._flow.resume, by=maker),
            BulkAct.STOP_JOBS: partial(self._flow.stop, by=maker),
        }
        move = moves[action.act]

        async def move_one(key: str) -> bool:
            return await move(key) is not None

        return await _each(move_one, things, lambda key: key.partition(".")[0], until=until)


async def _each(
    move: Callable[[Any], Awaitable[bool]], things: Sequence[Any], name: Callable[[Any], str], *, until: float
) -> BulkTally:
    """Move things, some at a time. A thing that is gone or needs no move is skipped."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def move_one(thing: Any) -> bool | BulkFailure:
        async with gate:
            _check_held(until)
            try:
                return await move(thing)
            except Refused as error:
                return BulkFailure(name(thing), error.reason)

    results = await asyncio.gather(*map(move_one, things))
    failures = tuple(each for each in results if isinstance(each, BulkFailure))
    return BulkTally(done=results.count(True), skipped=results.count(False), failures=failures)


def _check_held(until: float) -> None:
    """Raise `Unavailable` if the hold on the action may be over: its next worker does the rest of the page."""
    if time.monotonic() > until:
        raise Unavailable("the hold on the bulk action may be over")


def _namespace(filter: BulkFilter) -> str:
    return "" if filter.namespace == EVERYWHERE else filter.namespace


def _state(act: BulkAct, filter: BulkFilter) -> ScheduleState | None:
    implied = {BulkAct.PAUSE_SCHEDULES: ScheduleState.ACTIVE, BulkAct.RESUME_SCHEDULES: ScheduleState.PAUSED}
    return ScheduleState(filter.state) if filter.state else implied.get(act)


def statuses_for(act: BulkAct, filter: BulkFilter) -> frozenset[JobStatus]:
    allowed = {BulkAct.PAUSE_JOBS: PAUSABLE, BulkAct.RESUME_JOBS: RESUMABLE, BulkAct.STOP_JOBS: STOPPABLE}[act]
    return allowed & {JobStatus(filter.status)} if filter.status else allowed


SUMMED = 500
"""With more jobs than this, devices are not summed."""


async def sum_stopped(store: Store, filter: BulkFilter, matched: int) -> MoveFigures:
    statuses = statuses_for(BulkAct.STOP_JOBS, filter)
    keys = await store.bulk_jobs.keys(statuses, filter, before=2**63 - 1, limit=SUMMED)
    if keys.more:
        return MoveFigures(matched, None, None)
    return await sum_unsent(store, list((await store.jobs.with_ids(keys)).values()) if keys else [])


LEASE = timedelta(seconds=15)
MESSAGE_SECONDS = 60.0
COUNTED = 1_000_000
"""Counts end here: this many, or more."""
_LOST_AT_ONCE = 100
_TRUSTED_SHARE = 0.7


class BulkFlow:
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
        return await self._store.bulk_actions.cancel(action_id, by=by, at=await self._time.now())

    async def take(self, action_id: str) -> "BulkTurn | None":
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
