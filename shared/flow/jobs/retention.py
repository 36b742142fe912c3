"""Retention of jobs. The batches of closed jobs are forgotten after their time, in small steps, and so are the
Idempotency-Keys of jobs. So are plans of files, and divisions, whose jobs are gone: a job that is withdrawn while
somebody begins to plan it leaves one.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from shared.flow.jobs.kinds import JobKinds
from shared.flow.jobs.remains import JobRemains
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
        self._remains = JobRemains(store)
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
            await self._remains.remove(await self._leave_out_kept(closed))
            await self._store.closed_jobs.note_batches_removed(closed)
        return len(closed)

    async def _leave_out_kept(self, job_keys: Sequence[str]) -> list[str]:
        """These jobs, but for those whose kind keeps their batches."""
        jobs = (await self._store.jobs.with_ids(job_keys)).values()
        kept = {job.key for job in jobs if job.credential_id and self._kinds.of(job.service).keeps_batches}
        return [key for key in job_keys if key not in kept]

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


class _Plans(Protocol):
    """Stored plans of one sort, each of a job or of all jobs of a group."""

    async def ids(self, *, after: str, limit: int) -> list[str]: ...

    async def remove_of(self, plan_ids: Sequence[str], /) -> None: ...
