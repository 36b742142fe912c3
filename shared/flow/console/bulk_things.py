"""The things of bulk actions: count those that match a filter, read a page, act on it.

Each act is safe to repeat: if a worker dies, its page is done again without effect.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from shared.domain.accounts.roles import EVERYWHERE
from shared.domain.clock.dead_letters import LetterPlace, place_of
from shared.domain.clock.labels import read_labels
from shared.domain.clock.schedules import Schedule, ScheduleState
from shared.domain.console.bulk_actions import BulkAct, BulkAction, BulkFailure, BulkFilter, BulkTally
from shared.domain.errors import Refused, Unavailable
from shared.domain.jobs.events import Doer
from shared.domain.jobs.jobs import PAUSABLE, RESUMABLE, STOPPABLE, Job, JobStatus
from shared.flow.clock.schedules import ScheduleFlow
from shared.flow.jobs.jobs import JobFlow
from shared.store import Store

AT_ONCE = 16


class BulkPage(Struct, frozen=True):
    """Some things, and the position of the next page; `""` after the last."""

    things: Sequence[Any]
    position: str


class BulkThings(Protocol):
    """The things of one kind."""

    async def count(self, act: BulkAct, filter: BulkFilter, *, before: datetime, most: int) -> int:
        """The number of matching things made before `before`; `most` if there are more."""

    async def read(self, action: BulkAction) -> BulkPage:
        """The page at the action's position."""

    async def do(self, action: BulkAction, things: Sequence[Any], *, until: float) -> BulkTally:
        """Act on these things, and begin none after `until` (monotonic)."""


class BulkLetters:
    """Dead letters, newest first."""

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
    """Open jobs, by id, whose status allows the move."""

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
    """The statuses of jobs that the act applies to."""
    allowed = {BulkAct.PAUSE_JOBS: PAUSABLE, BulkAct.RESUME_JOBS: RESUMABLE, BulkAct.STOP_JOBS: STOPPABLE}[act]
    return allowed & {JobStatus(filter.status)} if filter.status else allowed
