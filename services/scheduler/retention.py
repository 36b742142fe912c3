"""Retention: what is older than its time is forgotten, in small steps: finished schedules, outcomes, idempotency keys,
the batches of closed jobs. And the plans of files and the divisions whose jobs are gone: a job that is withdrawn while
somebody begins to plan it leaves one.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from shared.domain.instants import ms
from shared.flow.time import DatabaseTime
from shared.runtime.loops import Periodic, Swept
from shared.runtime.metrics import PENDING
from shared.runtime.settings import SchedulerSettings
from shared.store import Store

_STEP = 1_000
_STEPS = 100
_JOBS = 20


class Retention:
    """One round. `settings` says how long each kind is kept."""

    def __init__(self, store: Store, time: DatabaseTime, settings: SchedulerSettings) -> None:
        self._store = store
        self._time = time
        self._settings = settings
        self._seen: dict[_Plans, str] = {}

    async def run_once(self) -> Swept:
        """Forget what is old, as far as one round goes. Raises `Unavailable`."""
        now = await self._time.now()
        schedules = now - timedelta(days=self._settings.schedule_retention_days)
        outcomes = now - timedelta(hours=self._settings.outcome_retention_hours)
        keys = now - timedelta(hours=self._settings.key_retention_hours)
        batches = now - timedelta(days=self._settings.batch_retention_days)
        store = self._store
        forgotten = (
            await _in_steps(lambda: self._forget_schedules(schedules, now), _STEP)
            + await _in_steps(lambda: store.outcomes.forget(before=outcomes, limit=_STEP), _STEP)
            + await _in_steps(lambda: store.idempotency.forget(before=keys, limit=_STEP), _STEP)
            + await _in_steps(lambda: store.jobs.expire_keys(_ns(keys), limit=_STEP), _STEP)
            + await _in_steps(lambda: store.groups.expire_keys(_ns(keys), limit=_STEP), _STEP)
            + await _in_steps(lambda: self._forget_batches(_ns(batches)), _JOBS)
            + await self._forget_orphans(store.files)
            + await self._forget_orphans(store.divisions)
        )
        PENDING.set(await store.occurrences.count())
        return Swept(discarded=forgotten)

    async def _forget_schedules(self, before: datetime, now: datetime) -> int:
        """Forget some that have finished: how many were looked at. One of which a dead letter is tried again, or that
        was fired by hand, has something left to do."""
        finished = await self._store.schedules.find_finished(before=before, limit=_STEP)
        busy = await self._store.occurrences.with_any([schedule.owner for schedule in finished])
        await self._store.schedules.keep_finished([each.id for each in finished if each.owner in busy], at=now)
        ended = [each.id for each in finished if each.owner not in busy]
        await self._store.schedules.forget_finished(ended, before=before)
        return len(finished)

    async def _forget_batches(self, before_ns: int) -> int:
        closed = await self._store.jobs.closed_before(before_ns, limit=_JOBS)
        if closed:
            await self._store.batches.remove_of(closed)
            await self._store.held_out.remove_of(closed)
            finished = await self._finished_plans(closed)
            await self._store.files.remove_of(finished)
            await self._store.divisions.remove_of(finished)
            await self._store.jobs.batches_forgotten(closed)
        return len(closed)

    async def _forget_orphans(self, plans: "_Plans") -> int:
        """Look at some of these plans a round. A plan is only ever made for a job that is there."""
        plan_ids = await plans.ids(after=self._seen.get(plans, ""), limit=_STEP)
        self._seen[plans] = plan_ids[-1] if len(plan_ids) == _STEP else ""
        if not plan_ids:
            return 0
        orphans = set(plan_ids) - await self._store.jobs.with_file_plans(plan_ids)
        if orphans:
            await plans.remove_of(sorted(orphans))
        return len(orphans)

    async def _finished_plans(self, job_ids: Sequence[str]) -> list[str]:
        """The plans of files, and the divisions, that nobody will read any more, now that these jobs are closed."""
        jobs = (await self._store.jobs.with_ids(job_ids)).values()
        apart = [job.file_plan_id for job in jobs if job.csv_path and not job.zone]
        plans = {job.file_plan_id: job.group_id for job in jobs if job.zone}
        return apart + [plan for plan, group_id in plans.items() if not await self._store.jobs.has_open_in(group_id)]


class _Plans(Protocol):
    """What jobs, or all jobs of a group, are planned by."""

    async def ids(self, *, after: str, limit: int) -> list[str]: ...

    async def remove_of(self, plan_ids: Sequence[str], /) -> None: ...


def retention(round_: Retention, *, interval_seconds: float) -> Periodic:
    """The component."""
    return Periodic("retention", round_.run_once, interval_seconds=interval_seconds)


def _ns(moment: datetime) -> int:
    return ms(moment) * 1_000_000


async def _in_steps(step: Callable[[], Awaitable[int]], size: int) -> int:
    total = 0
    for _ in range(_STEPS):
        found = await step()
        total += found
        if found < size:
            break
    return total
