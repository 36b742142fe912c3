"""Firing turns occurrences whose moment has come into their callbacks, or into Carillon's own work.

    still claimed? ──> schedules ──> judge ──> fire · skip · hold · move · wait · void ──> settle

Right before a group fires, one query finds which of it are still claimed under this process's tokens, and one reads
their schedules. The answers hold only while the leases are trusted: a slow store answers late, and another scheduler
may have claimed all of the group by then.

A suspect comes alone. The beginning of its attempt is stored right before it; if a worker makes the attempt, the worker
stores it. If the attempt ends as `Unavailable`, no process died of it, and this is stored too. An error in Carillon's
code counts like a death.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from services.scheduler.deliver import Deliveries, Due
from shared.clock.calendars import find_days
from shared.clock.rules.calendars import Days
from shared.clock.rules.callbacks import ByWorker
from shared.clock.rules.occurrences import SCHEDULE, Occurrence, OccurrenceKind, Owner, read_owner
from shared.clock.rules.schedules import Schedule
from shared.clock.rules.verdicts import Verdict, judge, missed_until
from shared.clock.settlement import Attempt, Settlement, not_attempted
from shared.clock.store_occurrences import Retry
from shared.core.errors import Unavailable
from shared.runtime.faults import fault
from shared.runtime.metrics import CONFLICTS
from shared.runtime.tracing import carry, resume
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)

_SOON = timedelta(seconds=2)
_LATER = timedelta(seconds=10)
_WORK_AT_ONCE = 20
_NOBODYS = timedelta(seconds=1)


OnDue = Callable[[Occurrence], Awaitable[None]]
"""Does the work of an occurrence for one kind of owner. It may be repeated; after `Unavailable` it is called again
soon."""


class Fire:
    """`Firing` for every owner of occurrences: schedules here, other kinds by their handler in `on_due`."""

    def __init__(
        self,
        store: Store,
        time: DatabaseTime,
        deliveries: Deliveries,
        settlement: Settlement,
        on_due: Mapping[str, OnDue],
        *,
        tick: timedelta,
        misfire_after: timedelta,
        work_seconds: float,
    ) -> None:
        self._store = store
        self._time = time
        self._deliveries = deliveries
        self._settlement = settlement
        self._on_due = on_due
        self._tick = tick
        self._misfire_after = misfire_after
        self._work_seconds = work_seconds

    async def fire(self, due: list[Occurrence], *, trusted_until: float) -> bool:
        ours = await self._store.occurrences.ours(due)
        CONFLICTS.inc(len(due) - len(ours))
        owned = [(occurrence, _owner_of(occurrence)) for occurrence in ours]
        callbacks = [(occurrence, owner.id) for occurrence, owner in owned if owner.kind == SCHEDULE]
        work = [(occurrence, owner.kind) for occurrence, owner in owned if owner.kind != SCHEDULE]
        ids = {schedule_id for _, schedule_id in callbacks}
        schedules = await self._store.schedules.many(list(ids), small=True) if ids else {}
        days = await find_days(self._store, schedules.values())
        await fault("clock.after_look")
        _check_trusted(trusted_until)
        moved = await self._callbacks(callbacks, schedules, days, trusted_until)
        await self._begin_work(work)
        return moved

    async def _callbacks(
        self,
        due: Sequence[tuple[Occurrence, str]],
        schedules: Mapping[str, Schedule],
        days: Mapping[str, Days],
        trusted_until: float,
    ) -> bool:
        if not due:
            return False
        now = self._time.reckon()
        judged = self._judge(due, schedules, days, now)
        await self._store.occurrences.complete([occurrence for occurrence, _ in judged[Verdict.VOID]])
        await self._store.occurrences.retry(
            [
                # A missing schedule comes within a moment or never, so the pauses grow.
                Retry(occurrence, now + max((now - occurrence.accepted_at) / 2, _NOBODYS), occurrence.attempts)
                for occurrence, _ in judged[Verdict.WAIT]
            ]
        )
        await self._hold_back(judged[Verdict.HOLD])
        moving = [(occurrence, schedule) for occurrence, schedule in judged[Verdict.MOVE] if schedule is not None]
        if moving:
            await self._settlement.follow(moving)
        skipped = [
            self._skip(occurrence, schedule, now)
            for occurrence, schedule in judged[Verdict.SKIP]
            if schedule is not None
        ]
        firing = [(occurrence, schedule) for occurrence, schedule in judged[Verdict.FIRE] if schedule is not None]
        moved = await self._attempt_and_settle(firing, skipped, trusted_until)
        return bool(judged[Verdict.MOVE]) or any(occurrence.due <= now + self._tick for occurrence in moved)

    def _judge(
        self,
        due: Sequence[tuple[Occurrence, str]],
        schedules: Mapping[str, Schedule],
        days: Mapping[str, Days],
        now: datetime,
    ) -> dict[Verdict, list[tuple[Occurrence, Schedule | None]]]:
        judged: dict[Verdict, list[tuple[Occurrence, Schedule | None]]] = {verdict: [] for verdict in Verdict}
        for occurrence, schedule_id in due:
            schedule = schedules.get(schedule_id)
            verdict = judge(
                schedule,
                occurrence,
                now,
                tick=self._tick,
                misfire_after=self._misfire_after,
                days=days.get(schedule_id),
            )
            judged[verdict].append((occurrence, schedule))
        return judged

    def _skip(self, occurrence: Occurrence, schedule: Schedule, now: datetime) -> Attempt:
        passed_over = missed_until(schedule.definition.misfire, now, misfire_after=self._misfire_after)
        return Attempt(occurrence, schedule, now, skipped=True, passed_over=passed_over)

    async def _attempt_and_settle(
        self, due: list[Due], skipped: list[Attempt], trusted_until: float
    ) -> list[Occurrence]:
        now = self._time.reckon()
        buried = [not_attempted(occurrence, schedule, now) for occurrence, schedule in due if occurrence.is_poisonous]
        healthy = [(occurrence, schedule) for occurrence, schedule in due if not occurrence.is_poisonous]
        suspects = [occurrence for occurrence, schedule in healthy if _begins_here(occurrence, schedule)]
        try:
            lost = await self._begin(suspects, trusted_until)
            attempts, moved = await self._attempt([entry for entry in healthy if entry[0].id not in lost])
            return moved + await self._settlement.settle(skipped + buried + attempts)
        except Unavailable:
            await self._store.occurrences.acquit(suspects)
            raise

    async def _begin(self, suspects: Sequence[Occurrence], trusted_until: float) -> set[str]:
        """Store that these attempts begin; return the ids that this process no longer owns."""
        lost = {suspect.id for suspect in suspects if not await self._store.occurrences.begin(suspect)}
        if suspects:
            CONFLICTS.inc(len(lost))
            _check_trusted(trusted_until)
        return lost

    async def _attempt(self, due: list[Due]) -> tuple[list[Attempt], list[Occurrence]]:
        now = self._time.reckon()
        await fault("clock.before_publish")
        attempts, moved = await self._deliveries.deliver(due, now)
        await fault("clock.after_publish")
        return attempts, moved

    async def _hold_back(self, paused: Sequence[tuple[Occurrence, Schedule | None]]) -> None:
        if paused:
            schedule_ids = {schedule.id for _, schedule in paused if schedule is not None}
            await self._settlement.hold_back([occurrence for occurrence, _ in paused], list(schedule_ids))

    async def _begin_work(self, due: Sequence[tuple[Occurrence, str]]) -> None:
        gate = asyncio.Semaphore(_WORK_AT_ONCE)
        try:
            async with asyncio.timeout(self._work_seconds):
                await asyncio.gather(*(self._begin_or_retry(occurrence, kind, gate) for occurrence, kind in due))
        except TimeoutError:
            log.warning("work waits for the end of its lease", occurrences=len(due))

    async def _begin_or_retry(self, occurrence: Occurrence, kind: str, gate: asyncio.Semaphore) -> None:
        """Start the work. Unreadable work comes back after `_LATER`: a process of another version may know it."""
        handler = self._on_due.get(kind)
        async with gate:
            try:
                if handler is None:
                    raise ValueError(f"this process knows no work of the kind {kind!r}")
                with carry(resume(occurrence.trace)):
                    await handler(occurrence)
            except ValueError:
                log.exception("work that cannot be read", owner=occurrence.owner)
                await self._retry(occurrence, _LATER)
            except Unavailable as error:
                log.warning("work waits for its task", owner=occurrence.owner, reason=str(error))
                await self._retry(occurrence, _SOON)
            else:
                # A series goes on: the process that does its work moves it, under its own token.
                if occurrence.kind is not OccurrenceKind.SERIES:
                    await self._store.occurrences.complete([occurrence])

    async def _retry(self, occurrence: Occurrence, after: timedelta) -> None:
        moment = self._time.reckon() + after
        await self._store.occurrences.retry([Retry(occurrence, moment, occurrence.attempts)])


def _owner_of(occurrence: Occurrence) -> Owner:
    """The occurrence's owner; one without a kind if this process cannot read it."""
    try:
        return read_owner(occurrence.owner)
    except ValueError:
        return Owner("", occurrence.owner)


def _check_trusted(until: float) -> None:
    if asyncio.get_running_loop().time() >= until:
        raise Unavailable("the store answered when the leases were not to be trusted any more")


def _begins_here(occurrence: Occurrence, schedule: Schedule) -> bool:
    """Whether this process stores the beginning of the attempt; not if a worker makes it."""
    return occurrence.is_suspect and not isinstance(schedule.definition.callback, ByWorker)
