"""Retention of the clock: finished schedules, outcomes and Idempotency-Keys of schedules are removed in small steps."""

from datetime import datetime, timedelta

from shared.flow.time import DatabaseTime
from shared.runtime.loops import Swept, repeat
from shared.runtime.metrics import PENDING
from shared.runtime.settings import SchedulerSettings
from shared.store import Store

_STEP = 1_000


class Retention:
    """Removes old data of the clock. `settings` says how long each kind is kept."""

    def __init__(self, store: Store, time: DatabaseTime, settings: SchedulerSettings) -> None:
        self._store = store
        self._time = time
        self._settings = settings

    async def run_once(self) -> Swept:
        now = await self._time.now()
        schedules = now - timedelta(days=self._settings.schedule_retention_days)
        outcomes = now - timedelta(hours=self._settings.outcome_retention_hours)
        keys = now - timedelta(hours=self._settings.key_retention_hours)
        store = self._store
        forgotten = (
            await repeat(lambda: self._forget_schedules(schedules, now), while_full=_STEP)
            + await repeat(lambda: store.outcomes.forget(before=outcomes, limit=_STEP), while_full=_STEP)
            + await repeat(lambda: store.idempotency.forget(before=keys, limit=_STEP), while_full=_STEP)
        )
        PENDING.set(await store.occurrences.count())
        return Swept(discarded=forgotten)

    async def _forget_schedules(self, before: datetime, now: datetime) -> int:
        """Remove some finished schedules; returns how many were looked at. A schedule stays while it has occurrences:
        it was fired by hand, or a dead letter is tried again."""
        finished = await self._store.schedules.find_finished(before=before, limit=_STEP)
        busy = await self._store.occurrences.with_any([schedule.owner for schedule in finished])
        kept = [schedule for schedule in finished if schedule.owner in busy]
        await self._store.schedules.keep_finished([schedule.id for schedule in kept], at=now)
        # Occurrences without a schedule keep it for one round, not until they are due.
        await self._store.occurrences.remove_void({schedule.owner: schedule.generation for schedule in kept}, now=now)
        ended = [schedule.id for schedule in finished if schedule.owner not in busy]
        await self._store.schedules.forget_finished(ended, before=before)
        return len(finished)
