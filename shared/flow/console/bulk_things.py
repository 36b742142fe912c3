"""The things that bulk actions are done to: how many a filter matches, a page of them, and the act on that page.

Each act is one that is safe to repeat: a page that a dead worker left is done once more, and does nothing more.
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
    """Some things, and where the next page begins; `""` after the last."""

    things: Sequence[Any]
    position: str


class BulkThings(Protocol):
    """The things of one kind. All raise `Unavailable`."""

    async def count(self, act: BulkAct, filter: BulkFilter, *, before: datetime, most: int) -> int:
        """How many the filter matches that were there before then; `most` where there are more."""

    async def read(self, action: BulkAction) -> BulkPage:
        """The page that the action stands at."""

    async def do(self, action: BulkAction, things: Sequence[Any], *, until: float) -> BulkTally:
        """Do the act to each of these, and begin none after this moment (monotonic)."""


class BulkLetters:
    """Dead letters, the newest first."""

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
    """Schedules, by key. A pause is for those that fire, a resume for those that are paused."""

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
            # What was paused with its caller's rights would be paused once more otherwise.
            await self._store.revocations.spare(schedule.namespace, schedule.id, token_id=action.token_id)
        return await self._flow.resume(schedule.id) is not None

    async def _remove(self, schedule: Schedule) -> bool:
        return await self._flow.remove(schedule.id)


class BulkJobs:
    """Open jobs, by id: those whose status allows the move."""

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
    """Move these, some at a time. A thing that is not there any more, or needs no move, is skipped."""
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
    """Raise `Unavailable` where the hold on the action may be over: whoever has it now does the rest of the page."""
    if time.monotonic() > until:
        raise Unavailable("the hold on the bulk action may be over")


def _namespace(filter: BulkFilter) -> str:
    return "" if filter.namespace == EVERYWHERE else filter.namespace


def _state(act: BulkAct, filter: BulkFilter) -> ScheduleState | None:
    """The state that the schedules must have."""
    implied = {BulkAct.PAUSE_SCHEDULES: ScheduleState.ACTIVE, BulkAct.RESUME_SCHEDULES: ScheduleState.PAUSED}
    return ScheduleState(filter.state) if filter.state else implied.get(act)


def statuses_for(act: BulkAct, filter: BulkFilter) -> frozenset[JobStatus]:
    """The statuses that the jobs must have."""
    allowed = {BulkAct.PAUSE_JOBS: PAUSABLE, BulkAct.RESUME_JOBS: RESUMABLE, BulkAct.STOP_JOBS: STOPPABLE}[act]
    return allowed & {JobStatus(filter.status)} if filter.status else allowed
