"""Sweeps: what schedules leave behind, in small steps.

- A schedule whose insertion was never finished is taken over and finished.
- A schedule whose last instant is past and of which no occurrence is left has finished.
- What is older than its retention is forgotten: finished schedules, outcomes, idempotency keys, batches of closed jobs.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from shared.domain.instants import ms
from shared.flow import DatabaseTime, ScheduleFlow
from shared.runtime.loops import Periodic, Swept
from shared.runtime.metrics import PENDING
from shared.runtime.settings import SchedulerSettings
from shared.store import Store

_STEP = 1_000
_STEPS = 10
_JOBS = 20
_INCOMPLETE_FOR = timedelta(seconds=10)
_PAST_FOR = timedelta(seconds=10)


class Sweep:
    """One look at each of these."""

    def __init__(self, store: Store, time: DatabaseTime, schedules: ScheduleFlow, settings: SchedulerSettings) -> None:
        self._store = store
        self._time = time
        self._schedules = schedules
        self._settings = settings

    async def run_once(self) -> Swept:
        """Finish what is half done, and forget what is old. Raises `Unavailable`."""
        completed = await self._complete()
        finished = await self._finish()
        forgotten = await self._forget()
        PENDING.set(await self._store.occurrences.count())
        return Swept(claimed=completed + finished, discarded=forgotten)

    async def _complete(self) -> int:
        before = await self._time.now() - _INCOMPLETE_FOR
        incomplete = await self._store.schedules.incomplete(before=before, limit=_STEP)
        return sum([await self._schedules.complete(schedule) for schedule in incomplete])

    async def _finish(self) -> int:
        now = await self._time.now()
        past = await self._store.schedules.past(before=now - _PAST_FOR, limit=_STEP)
        if not past:
            return 0
        busy = await self._store.occurrences.with_any([schedule.owner for schedule in past])
        done = [schedule for schedule in past if schedule.owner not in busy]
        await self._store.schedules.finish(done, at=now)
        return len(done)

    async def _forget(self) -> int:
        now = await self._time.now()
        settings = self._settings
        schedules_before = now - timedelta(days=settings.schedule_retention_days)
        outcomes_before = now - timedelta(hours=settings.outcome_retention_hours)
        keys_before = now - timedelta(hours=settings.key_retention_hours)
        batches_before = now - timedelta(days=settings.batch_retention_days)
        return (
            await _in_steps(lambda: self._store.schedules.forget_finished(before=schedules_before, limit=_STEP))
            + await _in_steps(lambda: self._store.outcomes.forget(before=outcomes_before, limit=_STEP))
            + await _in_steps(lambda: self._store.idempotency.forget(before=keys_before, limit=_STEP))
            + await _in_steps(lambda: self._store.jobs.expire_keys(_ns(keys_before), limit=_STEP))
            + await self._forget_batches(_ns(batches_before))
        )

    async def _forget_batches(self, before_ns: int) -> int:
        closed = await self._store.jobs.closed_before(before_ns, limit=_JOBS)
        if closed:
            await self._store.batches.remove_of(closed)
            await self._store.jobs.batches_forgotten(closed)
        return len(closed)


def _ns(moment: datetime) -> int:
    return ms(moment) * 1_000_000


async def _in_steps(step: Callable[[], Awaitable[int]]) -> int:
    total = 0
    for _ in range(_STEPS):
        found = await step()
        total += found
        if found < _STEP:
            break
    return total


def sweeping(sweep: Sweep, *, interval_seconds: float) -> Periodic:
    """The component."""
    return Periodic("sweep", sweep.run_once, interval_seconds=interval_seconds)
