"""Deleting ended jobs with all their data, on request or after `kept_days`.

    ended ──> being removed: cannot be reopened ──> messages, batches, plans, in steps ──> its group ──> the job

The job is removed last. After a death on the way, the next round of any scheduler continues by it. Late workers and
callbacks find no batch and no message, and do nothing.

Retention of jobs: batches of closed jobs and Idempotency-Keys are removed after their time, in small steps. Plans,
divisions, batches and held-out users of deleted jobs are removed too: a worker that comes late to such a job leaves
some.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from shared.accounts.removal import Belongings
from shared.core.errors import Conflict
from shared.jobs.kinds import JobKinds, UnknownKind
from shared.jobs.rules.jobs import Job, JobStage, job_owner
from shared.runtime.faults import fault
from shared.runtime.loops import Swept, repeat
from shared.runtime.settings import SchedulerSettings
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)


class JobRemains:
    """Removes the documents of closed jobs. Safe to repeat."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def remove(self, job_keys: Sequence[str]) -> None:
        await self._store.batches.remove_of(job_keys)
        await self._store.held_out.remove_of(job_keys)
        if finished := await self._find_finished_plans(job_keys):
            await self._store.files.remove_of(finished)
            await self._store.divisions.remove_of(finished)

    async def _find_finished_plans(self, job_keys: Sequence[str]) -> list[str]:
        jobs = (await self._store.jobs.with_ids(job_keys)).values()
        apart = [job.file_plan_id for job in jobs if job.csv_path and not job.zone]
        plans = {job.file_plan_id: job.group_id for job in jobs if job.zone}
        is_open = self._store.open_jobs.has_open_in
        return apart + [plan for plan, group_id in plans.items() if not await is_open(group_id)]


REQUEST_SECONDS = 5.0
ROUND_SECONDS = 20.0
_JOBS = 20
_STEPS = 20
# An API process dates groups by its own clock, which may be fast.
_AHEAD = timedelta(days=1)


class JobRemoval:
    def __init__(
        self,
        store: Store,
        time: DatabaseTime,
        kinds: JobKinds,
        before_forgetting: Callable[[Sequence[str]], Awaitable[None]],
        *,
        kept_days: float = 0,
    ) -> None:
        """Jobs are kept for `kept_days` after their end; 0 keeps them for ever."""
        self._store = store
        self._time = time
        self._kinds = kinds
        self._remains = JobRemains(store)
        self._before_forgetting = before_forgetting
        self._kept = timedelta(days=kept_days)

    async def remove(self, job: Job, *, seconds: float) -> bool:
        """Delete the job for at most `seconds`; returns whether it is gone. Another call continues. Raises `Conflict`
        if it has not ended, or its group is still being made and would make it again."""
        if job.zone and job.group_id in await self._find_groups_in_the_making():
            raise Conflict("the localized push is still being made: try again in a minute", field="jobId", value=job.id)
        if not await self._store.closed_jobs.begin_removal(job.key):
            if await self._store.jobs.view(job.key) is None:
                return True
            reason = "the job has not ended: stop it, and delete it once nothing of it is being sent"
            raise Conflict(reason, field="jobId", value=job.id)
        await fault("deletion.after_begin")
        return await self._go_on([job.key], time.monotonic() + seconds)

    async def run_once(self) -> Swept:
        closed, deadline, gone = self._store.closed_jobs, time.monotonic() + ROUND_SECONDS, 0
        known = self._kinds.services.keys()
        if unknown := await closed.find_removing_services() - known:
            log.error("deletions of jobs are left to processes that know their kinds", services=sorted(unknown))
        while time.monotonic() < deadline:
            if self._kept:
                in_the_making = await self._find_groups_in_the_making()
                before = await self._time.now() - self._kept
                for key in await closed.find_expired(before, without_groups=in_the_making, limit=_JOBS):
                    await closed.begin_removal(key)
            job_keys = await closed.find_removing(known, limit=_JOBS)
            if not job_keys or not await self._go_on(job_keys, deadline):
                break
            gone += len(job_keys)
        return Swept(discarded=gone)

    async def remove_some(self, job_keys: Sequence[str]) -> None:
        await self._before_forgetting(job_keys)
        jobs = (await self._store.jobs.with_ids(job_keys)).values()
        empty = await self._empty(jobs)
        if not empty:
            return
        keys = [job.key for job in empty]
        await self._remains.remove(keys)
        await fault("deletion.after_batches")
        await self._store.occurrences.remove_of(*(job_owner(key, stage) for key in keys for stage in JobStage))
        await self._remove_empty_groups(empty)
        await fault("deletion.before_end")
        await self._store.closed_jobs.remove(keys)

    async def _find_groups_in_the_making(self) -> list[str]:
        """Groups that upkeep still completes: it would make their deleted jobs again."""
        before = await self._time.now() + _AHEAD
        return [group.id async for group in self._store.groups.find_incomplete(before)]

    async def _go_on(self, job_keys: Sequence[str], deadline: float) -> bool:
        """Whether all jobs are gone by the deadline. Other processes may remove them at the same time."""
        while True:
            await self.remove_some(job_keys)
            await fault("deletion.after_step")
            if not await self._store.jobs.with_ids(job_keys):
                return True
            if time.monotonic() > deadline:
                return False

    async def _empty(self, jobs: Iterable[Job]) -> list[Job]:
        """Let the kinds remove their data of these jobs, in at most `_STEPS` steps; returns the jobs without data."""
        empty, steps = list[Job](), _STEPS
        for job in jobs:
            while job.credential_id and steps and await self._kinds.of(job.service).forget_some(job):
                steps -= 1
            if not steps:
                break
            empty.append(job)
        return empty

    async def _remove_empty_groups(self, jobs: Iterable[Job]) -> None:
        """Remove groups whose jobs are all being removed. If several processes remove the last jobs, at least one finds
        that."""
        for group_id in {job.group_id for job in jobs if job.zone}:
            if not await self._store.closed_jobs.has_kept_in(group_id):
                await self._store.groups.remove(group_id)


_JOBS_OF_APP = 100


class JobBelongings(Belongings):
    def __init__(self, store: Store, removal: JobRemoval) -> None:
        self._store = store
        self._removal = removal

    async def check_idle(self, app_id: str) -> None:
        if await self._store.open_jobs.has_open(app_id):
            raise Conflict("the app has unfinished jobs: stop them or wait", field="appId", value=app_id)

    async def withdraw(self, app_id: str) -> None:
        await self._store.groups.remove_of(app_id)

    async def remove_at_once(self, app_id: str) -> None:
        await self._store.templates.remove_of(app_id)

    async def remove_some(self, app_id: str) -> bool:
        job_keys = await self._store.closed_jobs.find_of_app(app_id, limit=_JOBS_OF_APP)
        if job_keys:
            try:
                await self._removal.remove_some(job_keys)
            except UnknownKind as error:
                # The deletions of other apps go on.
                reason = f"{error}: let one of a newer version delete the app"
                raise Conflict(reason, field="appId", value=app_id) from None
        return bool(job_keys)


_STEP = 1_000
_LOOKS = 100


class JobRetention:
    """Removes old data of jobs. `settings` says how long each kind is kept."""

    def __init__(self, store: Store, time: DatabaseTime, kinds: JobKinds, settings: SchedulerSettings) -> None:
        self._store = store
        self._kinds = kinds
        self._remains = JobRemains(store)
        self._time = time
        self._settings = settings
        self._seen: dict[str, str] = {}
        self._orphans: dict[str, set[str]] = {}

    async def run_once(self) -> Swept:
        now = await self._time.now()
        keys = now - timedelta(hours=self._settings.key_retention_hours)
        batches = now - timedelta(days=self._settings.batch_retention_days)
        store = self._store
        forgotten = (
            await repeat(lambda: store.closed_jobs.expire_keys(keys, limit=_STEP), while_full=_STEP)
            + await repeat(lambda: store.groups.expire_keys(keys, limit=_STEP), while_full=_STEP)
            + await repeat(lambda: self._forget_batches(batches), while_full=_JOBS)
            + await self._forget_orphans("files", store.files.ids, store.files.remove_of, _STEP)
            + await self._forget_orphans("divisions", store.divisions.ids, store.divisions.remove_of, _STEP)
            + await self._forget_orphans("batches", store.batch_sums.job_ids, store.batches.remove_of, _LOOKS)
            + await self._forget_orphans("held out", store.held_out.job_ids, store.held_out.remove_of, _LOOKS)
        )
        return Swept(discarded=forgotten)

    async def _forget_batches(self, before: datetime) -> int:
        # A process of another version removes the batches of kinds that only it knows.
        services = self._kinds.services
        closed = await self._store.closed_jobs.find_ended_before(before, services, limit=_JOBS)
        if closed:
            await self._remains.remove(await self._leave_out_kept(closed))
            await self._store.closed_jobs.note_batches_removed(closed)
        return len(closed)

    async def _leave_out_kept(self, job_keys: Sequence[str]) -> list[str]:
        jobs = (await self._store.jobs.with_ids(job_keys)).values()
        kept = {job.key for job in jobs if job.credential_id and self._kinds.of(job.service).keeps_batches}
        return [key for key in job_keys if key not in kept]

    async def _forget_orphans(
        self, sort: str, find: "_FindIds", remove: Callable[[Sequence[str]], Awaitable[None]], limit: int
    ) -> int:
        """Look at some documents that name a job or a group; remove those whose job or group is missing at two looks. A
        document is only made for an existing job, but a new primary may not know that job yet. So the same documents
        are looked at again before the next ones."""
        ids = await find(after=self._seen.get(sort, ""), limit=limit)
        orphans = set(ids) - await self._store.closed_jobs.with_file_plans(ids) if ids else set[str]()
        lasting = sorted(orphans & self._orphans.get(sort, set()))
        if lasting:
            await remove(lasting)
        self._orphans[sort] = orphans.difference(lasting)
        if not self._orphans[sort]:
            self._seen[sort] = ids[-1] if len(ids) == limit else ""
        return len(lasting)


class _FindIds(Protocol):
    """Finds the next ids of stored documents of one sort, each the id of a job or of a group's plan."""

    async def __call__(self, *, after: str, limit: int) -> list[str]: ...
