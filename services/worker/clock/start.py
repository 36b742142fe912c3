"""Starts of jobs by schedules: one job for each occurrence.

    find the job of the occurrence ──> rights ──> overlap ──> draft ──> note ──> store ──> confirm

The id of a job is that of its occurrence, so a repeated attempt finds the job. The note is a compare-and-set of the
schedule's last job: of the occurrences that are attempted at once, only one may store its job. The others find that job
open, or not stored yet. A job that is not stored after `_STORED_WITHIN` was lost with its worker. Occurrences that a
caller asked for, by hand or from a dead letter, wait and are not skipped.

The rights are those that the schedule's maker has now. The draft reads templates, account, audience and file as `POST`
of a job does. A mistake in these is a refusal: it may be mended before the next attempt.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Protocol

from msgspec.structs import replace

from shared.accounts.rules.apps import App, Role
from shared.accounts.rules.callers import Caller, token_caller, user_caller, user_namespace
from shared.clock.rules.callbacks import JobCallback, Overlap, Undeliverable
from shared.clock.rules.occurrences import OccurrenceKind, job_id_of
from shared.clock.rules.schedules import Schedule
from shared.clock.settlement import Attempt
from shared.core.errors import CarillonError, Conflict, Refused, Unavailable
from shared.jobs.moves import JobFlow
from shared.jobs.rules.jobs import Job
from shared.runtime.faults import fault
from shared.store import Store
from shared.time import DatabaseTime

_STORED_WITHIN = timedelta(minutes=2)
QUEUED = 100
"""Maximum of occurrences of a schedule that wait for an open job; later ones are skipped."""
_AT_ONCE = 8  # more would delay the plans of the jobs that have started
_SOONEST_SECONDS, _LATEST_SECONDS = 2.0, 60.0


class JobDrafting(Protocol):
    """Drafts jobs as the API does for a POST."""

    async def draft_due(self, callback: JobCallback, app: App, made_by: str) -> Job:
        """The job of a callback. Raises `Refused`."""

    async def confirm(self, job: Job) -> None:
        """Look once more, now that the job is stored, at what it refers to. Raises `Conflict` where that is gone."""


LoadDrafting = Callable[[], Awaitable[JobDrafting]]
"""Returns the drafting. The first call loads it, which takes a second."""


class _Barred(CarillonError):
    """No further attempt can start this job."""


class JobStarts:
    """Attempts to start jobs, each within `seconds`. It waits for a free place for at most half of them."""

    def __init__(
        self, store: Store, time: DatabaseTime, flow: JobFlow, load_drafting: LoadDrafting, *, seconds: float
    ) -> None:
        self._store = store
        self._time = time
        self._flow = flow
        self._load_drafting = load_drafting
        self._seconds = seconds
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def attempt(self, attempt: Attempt, callback: JobCallback) -> Attempt:
        """The attempt as it ended. Raises `Unavailable`."""
        ends_at = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout(self._seconds / 2):
                await self._gate.acquire()
        except TimeoutError:
            return replace(attempt, error=Unavailable("this worker starts other jobs"))
        try:
            async with asyncio.timeout_at(ends_at):
                return await self._attempt(attempt, callback)
        except TimeoutError:
            return replace(attempt, error=Undeliverable(f"the job was not started within {self._seconds:g} s"))
        except _Barred as error:
            return replace(attempt, error=Undeliverable(str(error)), final=True)
        except Refused as error:
            return replace(attempt, error=Undeliverable(error.reason))
        finally:
            self._gate.release()

    async def _attempt(self, attempt: Attempt, callback: JobCallback) -> Attempt:
        schedule, job_id = attempt.schedule, job_id_of(attempt.occurrence.message_id)
        if await self._store.jobs.view(job_id) is not None:
            return attempt
        caller = await self._find_maker(schedule, attempt.at)
        app = await self._find_app(callback, caller)
        alone = callback.overlap is not Overlap.ALLOW
        if alone and (ended := await self._wait_or_skip(attempt, job_id, callback.overlap)):
            return ended
        drafting = await self._load_drafting()
        draft = await drafting.draft_due(callback, app, caller.name)
        if not await self._store.schedules.note_job(schedule, job_id, attempt.at, alone=alone):
            return replace(attempt, error=Unavailable("the schedule has started another job just now"))
        await fault("start.after_note")
        job = replace(draft, id=job_id, schedule=schedule.id)
        try:
            await self._flow.start(job)
        except Conflict:
            return attempt  # another worker has stored it, after the lease of this one
        await fault("start.before_confirm")
        try:
            await drafting.confirm(job)
        except Conflict as conflict:
            await self._flow.take_back([job.key], conflict.reason)
            raise _Barred(conflict.reason) from conflict
        return attempt

    async def _wait_or_skip(self, attempt: Attempt, job_id: str, overlap: Overlap) -> Attempt | None:
        """The end of an attempt whose job may not start now."""
        reason, occurrence = await self._why_open(attempt, job_id), attempt.occurrence
        is_asked = occurrence.kind is OccurrenceKind.ASKED
        if overlap is Overlap.SKIP and not is_asked:
            return _skip(attempt, f"{reason}, and overlap is skip") if reason else None
        ahead = await self._store.occurrences.count_waiting(occurrence, most=QUEUED)
        if ahead >= QUEUED and not is_asked:
            return _skip(attempt, f"{QUEUED} earlier occurrences wait for an open job already")
        if not reason and not ahead:
            return None
        late = (attempt.at - max(occurrence.due, occurrence.accepted_at)).total_seconds()
        pause = min(max(late / 4, _SOONEST_SECONDS), _LATEST_SECONDS)
        error = Unavailable(reason or f"{ahead} earlier occurrences wait")
        return replace(attempt, error=error, retry_after_seconds=pause)

    async def _why_open(self, attempt: Attempt, job_id: str) -> str | None:
        """A sentence about the open job of another occurrence, if there is one."""
        last_id, last_at = attempt.schedule.last_job_id, attempt.schedule.last_job_at
        if last_id in {"", job_id}:
            return None
        last = await self._store.jobs.view(last_id)
        if last is None:
            is_new = last_at is not None and attempt.at < last_at + _STORED_WITHIN
            return f"job {last_id} of another occurrence is being started" if is_new else None
        return f"job {last_id} of another occurrence is still {last.status}" if last.open else None

    async def _find_maker(self, schedule: Schedule, now: datetime) -> Caller:
        if schedule.made_by:
            token = await self._store.tokens.get(schedule.made_by)
            if token is not None and not token.why_refused(token.digest, now):
                return token_caller(token)
            raise _Barred("the token that made the schedule is revoked or expired: replace the schedule with another")
        email = schedule.namespace.removeprefix(user_namespace(""))
        users = await self._store.users.with_emails([email])
        if email not in users:
            raise _Barred("the user who made the schedule is deleted")
        return user_caller(users[email])

    async def _find_app(self, callback: JobCallback, caller: Caller) -> App:
        app = await self._store.apps.get(callback.app_id)
        if app is None or app.deleting:
            raise _Barred("the app of the job is deleted")
        role = caller.role_over_app(app.id)
        if role is None or not role.covers(Role.OPERATOR):
            raise _Barred(f"{caller.name} made the schedule, and no longer has the role operator over the app")
        return app


def _skip(attempt: Attempt, reason: str) -> Attempt:
    return replace(attempt, error=Undeliverable(reason), skipped=True)
