"""Retention of jobs. The batches of closed jobs are forgotten after their time, in small steps, and so are the
Idempotency-Keys of jobs. So are plans of files, and divisions, whose jobs are gone: a job that is withdrawn while
somebody begins to plan it leaves one.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from shared.flow.jobs.kinds import JobKinds
from shared.flow.time import DatabaseTime
from shared.runtime.loops import Swept, repeat
from shared.runtime.settings import SchedulerSettings
from shared.store import Store

_STEP = 1_000
_JOBS = 20


class JobRetention:
    """Forgets what is old, a round at a time. `settings` says how long each kind is kept."""

    def __init__(self, store: Store, time: DatabaseTime, kinds: JobKinds, settings: SchedulerSettings) -> None:
        self._store = store
        self._kinds = kinds
        self._time = time
        self._settings = settings
        self._seen: dict[_Plans, str] = {}

    async def run_once(self) -> Swept:
        """Forget what is old, as far as one round goes. Raises `Unavailable`."""
        now = await self._time.now()
        keys = now - timedelta(hours=self._settings.key_retention_hours)
        batches = now - timedelta(days=self._settings.batch_retention_days)
        store = self._store
        forgotten = (
            await repeat(lambda: store.closed_jobs.expire_keys(keys, limit=_STEP), while_full=_STEP)
            + await repeat(lambda: store.groups.expire_keys(keys, limit=_STEP), while_full=_STEP)
            + await repeat(lambda: self._forget_batches(batches), while_full=_JOBS)
            + await self._forget_orphans(store.files)
            + await self._forget_orphans(store.divisions)
        )
        return Swept(discarded=forgotten)

    async def _forget_batches(self, before: datetime) -> int:
        closed = await self._store.closed_jobs.find_ended_before(before, limit=_JOBS)
        if closed:
            await self._keep_figures(closed)
            await self._store.batches.remove_of(closed)
            await self._store.held_out.remove_of(closed)
            finished = await self._find_finished_plans(closed)
            await self._store.files.remove_of(finished)
            await self._store.divisions.remove_of(finished)
            await self._store.closed_jobs.note_batches_removed(closed)
        return len(closed)

    async def _keep_figures(self, job_ids: Sequence[str]) -> None:
        for job in (await self._store.jobs.with_ids(job_ids)).values():
            if job.credential_id:  # others have their figures since they were closed
                await self._kinds.of(job.service).keep_figures(job)

    async def _forget_orphans(self, plans: "_Plans") -> int:
        """Look at some of these plans a round. A plan is only ever made for a job that is there."""
        plan_ids = await plans.ids(after=self._seen.get(plans, ""), limit=_STEP)
        self._seen[plans] = plan_ids[-1] if len(plan_ids) == _STEP else ""
        if not plan_ids:
            return 0
        orphans = set(plan_ids) - await self._store.closed_jobs.with_file_plans(plan_ids)
        if orphans:
            await plans.remove_of(sorted(orphans))
        return len(orphans)

    async def _find_finished_plans(self, job_ids: Sequence[str]) -> list[str]:
        """The plans of files, and the divisions, that nobody will read any more, now that these jobs are closed."""
        jobs = (await self._store.jobs.with_ids(job_ids)).values()
        apart = [job.file_plan_id for job in jobs if job.csv_path and not job.zone]
        plans = {job.file_plan_id: job.group_id for job in jobs if job.zone}
        is_open = self._store.open_jobs.has_open_in
        return apart + [plan for plan, group_id in plans.items() if not await is_open(group_id)]


class _Plans(Protocol):
    """Stored plans of one sort, each of a job or of all jobs of a group."""

    async def ids(self, *, after: str, limit: int) -> list[str]: ...

    async def remove_of(self, plan_ids: Sequence[str], /) -> None: ...
