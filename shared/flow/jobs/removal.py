"""Deleting ended jobs with all their data, on request or after `kept_days`.

    ended ──> being removed: cannot be reopened ──> messages, batches, plans, in steps ──> its group ──> the job

The job is removed last. After a death on the way, the next round of any scheduler continues by it. Late workers and
callbacks find no batch and no message, and do nothing.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta

import structlog

from shared.domain.errors import Conflict
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.owners import JobStage, job_owner
from shared.flow.jobs.kinds import JobKinds
from shared.flow.jobs.remains import JobRemains
from shared.flow.time import DatabaseTime
from shared.runtime.faults import fault
from shared.runtime.loops import Swept
from shared.store import Store

log = structlog.get_logger(__name__)

REQUEST_SECONDS = 5.0
ROUND_SECONDS = 20.0
_JOBS = 20
_STEPS = 20
# An API process dates groups by its own clock, which may be fast.
_AHEAD = timedelta(days=1)


class JobRemoval:
    """Deletes ended jobs. `before_forgetting` is called with the keys of jobs that are about to go."""

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
        """Delete jobs after their time, and continue deletions that were cut off."""
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
        """Do one step of the deletion of these closed jobs."""
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
