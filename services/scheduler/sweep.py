"""The sweep finishes schedules whose last instant is past and that have no occurrences left. It also removes
occurrences without a schedule, and releases held-back occurrences of schedules that are not paused: a process died
half-way. `Retention` removes finished schedules, outcomes and Idempotency-Keys of schedules in small steps."""

import itertools
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from shared.clock.rules.occurrences import SHARDS, read_owner
from shared.clock.rules.schedules import is_active, owner_of
from shared.clock.store_schedules import Ending
from shared.runtime.loops import Swept, repeat
from shared.runtime.metrics import PENDING
from shared.runtime.settings import SchedulerSettings
from shared.store import Store
from shared.time import DatabaseTime

_STEP = 1_000
_LOOK = 10_000
# Finishing delays what fires meanwhile, so few are finished at once.
_FINISHED_AT_ONCE = 200
_PAST_FOR = timedelta(seconds=10)
# A paused or retrying schedule must not block the others.
_AGAIN = timedelta(minutes=1)


class Sweep:
    def __init__(self, store: Store, time: DatabaseTime, shards: Iterator[int] | None = None) -> None:
        self._store = store
        self._time = time
        self._shards = shards or itertools.cycle(range(SHARDS))
        self._shard: int | None = None
        self._after = ""

    async def run_once(self) -> Swept:
        """Finish ended schedules, and look for remains of some others."""
        now = await self._time.now()
        finished = await self._finish(now)
        return Swept(claimed=await self._let_go(), discarded=finished)

    async def _finish(self, now: datetime) -> int:
        """Finish schedules that have ended by `now`; return the number. A schedule that is put off is not seen again
        in this run."""
        finished, before = 0, now - _PAST_FOR
        while True:
            past = await self._store.schedules.to_sweep(before=before, limit=_LOOK)
            ids = list(past)
            for start in range(0, len(ids), _FINISHED_AT_ONCE):
                some = {id: past[id] for id in ids[start : start + _FINISHED_AT_ONCE]}
                finished += await self._finish_some(some, before, now)
            if len(past) < _LOOK:
                return finished

    async def _finish_some(self, past: Mapping[str, Ending], before: datetime, now: datetime) -> int:
        active = [id for id, ending in past.items() if is_active(ending.state)]
        anchored = [owner_of(id) for id in active if past[id].anchored]
        busy = await self._store.occurrences.with_pending([owner_of(id) for id in active], anchored)
        ended = [id for id in active if owner_of(id) not in busy]
        await self._store.schedules.finish(ended, before=before, at=now)
        others = past.keys() - set(ended)
        await self._store.schedules.sweep_again(list(others), before=before, at=now + _AGAIN)
        # Some occurrences may belong to no schedule, and block an end: a process died as it made or replaced one.
        generations = {owner_of(id): past[id].generation for id in active if owner_of(id) in busy}
        await self._store.occurrences.remove_void(generations, now=now)
        return len(ended)

    async def _let_go(self) -> int:
        """Release held-back occurrences of resumed schedules, `_STEP` schedules per round."""
        if self._shard is None:
            self._shard, self._after = next(self._shards), ""
        held = await self._store.occurrences.find_held_back(self._shard, after=self._after, limit=_STEP)
        ids = {owner: read_owner(owner).id for owner in held}
        schedules = await self._store.schedules.many(list(ids.values())) if ids else {}
        let_go = 0
        for owner, generations in held.items():
            schedule = schedules.get(ids[owner])
            paused = schedule.generation if schedule is not None and schedule.is_paused else None
            for generation in generations:
                if generation != paused:
                    await self._store.occurrences.let_go(owner, generation)
                    let_go += 1
        if len(held) < _STEP:
            self._shard = None
        else:
            self._after = max(held)
        return let_go


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
        anchored = [schedule.owner for schedule in finished if schedule.definition.anchor is not None]
        busy = await self._store.occurrences.with_pending([schedule.owner for schedule in finished], anchored)
        kept = [schedule for schedule in finished if schedule.owner in busy]
        await self._store.schedules.keep_finished([schedule.id for schedule in kept], at=now)
        # Occurrences without a schedule keep it for one round, not until they are due.
        await self._store.occurrences.remove_void({schedule.owner: schedule.generation for schedule in kept}, now=now)
        ended = [schedule.id for schedule in finished if schedule.owner not in busy]
        await self._store.schedules.forget_finished(ended, before=before)
        for schedule in finished:
            if schedule.owner in anchored and schedule.owner not in busy:
                await self._store.occurrences.remove_parked(schedule.owner, generation=schedule.generation)
        return len(finished)
