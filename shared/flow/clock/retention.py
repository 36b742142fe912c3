"""Retention of the clock: what is older than its time is forgotten, in small steps: finished schedules, outcomes and
the Idempotency-Keys of schedules.
"""

from datetime import datetime, timedelta

from shared.flow.time import DatabaseTime
from shared.runtime.loops import Swept, repeat
from shared.runtime.metrics import PENDING
from shared.runtime.settings import SchedulerSettings
from shared.store import Store

_STEP = 1_000


class Retention:
    """Forgets what is old, a round at a time. `settings` says how long each kind is kept."""

    def __init__(self, store: Store, time: DatabaseTime, settings: SchedulerSettings) -> None:
        self._store = store
        self._time = time
        self._settings = settings

    async def run_once(self) -> Swept:
        """Forget what is old, as far as one round goes. Raises `Unavailable`."""
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
        """Forget some schedules that have finished; returns how many were looked at. One that was fired by hand, or has
        a dead letter that is tried again, still has something to do."""
        finished = await self._store.schedules.find_finished(before=before, limit=_STEP)
        busy = await self._store.occurrences.with_any([schedule.owner for schedule in finished])
        kept = [schedule for schedule in finished if schedule.owner in busy]
        await self._store.schedules.keep_finished([schedule.id for schedule in kept], at=now)
        # What belongs to nobody keeps a schedule once, not until it is due.
        await self._store.occurrences.remove_void({schedule.owner: schedule.generation for schedule in kept}, now=now)
        ended = [schedule.id for schedule in finished if schedule.owner not in busy]
        await self._store.schedules.forget_finished(ended, before=before)
        return len(finished)
