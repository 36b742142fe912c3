"""Retention of jobs: batches of closed jobs and Idempotency-Keys are removed after their time, in small steps. Plans,
divisions, batches and held-out users of deleted jobs are removed too: a worker that comes late to such a job leaves
some."""

from collections.abc import Awaitable, Callable, Sequence
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
