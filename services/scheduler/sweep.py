"""The sweep: a schedule whose insertion was never finished is taken over and finished; one whose last instant is past,
and of which nothing is left, has finished."""

from datetime import timedelta

from shared.flow import DatabaseTime, ScheduleFlow
from shared.runtime.loops import Periodic, Swept
from shared.store import Store

_STEP = 1_000
_INCOMPLETE_FOR = timedelta(seconds=10)
_PAST_FOR = timedelta(seconds=10)


class Sweep:
    """One look at both."""

    def __init__(self, store: Store, time: DatabaseTime, schedules: ScheduleFlow) -> None:
        self._store = store
        self._time = time
        self._schedules = schedules

    async def run_once(self) -> Swept:
        """Finish what is half done. Raises `Unavailable`."""
        return Swept(claimed=await self._complete(), discarded=await self._finish())

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


def sweeping(sweep: Sweep, *, interval_seconds: float) -> Periodic:
    """The component."""
    return Periodic("sweep", sweep.run_once, interval_seconds=interval_seconds)
