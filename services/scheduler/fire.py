"""Firing turns occurrences whose moment has come into their callbacks, or into Carillon's own work.

    still claimed? ──> schedules ──> judge ──> fire · skip · hold · follow · wait · void ──> settle

Right before a group fires, one query finds the occurrences that this process still claims, and another one reads their
schedules. The answers hold only while the leases are trusted: a slow store answers late, and another scheduler
may have claimed all of the group by then.

The clock passes a suspect in a call of its own. This process stores `begun` before a publish; the worker stores it
before a call. If the attempt ends as `Unavailable`, no process died of it, and this is stored too. An error in
Carillon's code counts like a death.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta

import structlog

from services.scheduler.deliver import Deliveries, Due
from shared.clock.calendars import find_days
from shared.clock.rules.calendars import Days
from shared.clock.rules.callbacks import ByWorker
from shared.clock.rules.following import Verdict, allowed_lateness, judge
from shared.clock.rules.occurrences import SCHEDULE, Occurrence, OccurrenceKind, Owner, read_owner
from shared.clock.rules.schedules import Schedule
from shared.clock.settlement import Attempt, Settlement, not_attempted
from shared.clock.store_occurrences import PutOff
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
_SHORTEST_WAIT = timedelta(seconds=1)

Owned = tuple[Occurrence, Schedule | None]
"""An occurrence with its schedule, if there is one."""

OnDue = Callable[[Occurrence], Awaitable[None]]
"""Does the work of an occurrence for one kind of owner. It may be repeated; after `Unavailable` it is called again
soon."""


@dataclass
class Fire:
    """`Firing` for every owner of occurrences: schedules here, other kinds by their handler in `on_due`."""

    store: Store
    time: DatabaseTime
    deliveries: Deliveries
    settlement: Settlement
    on_due: Mapping[str, OnDue]
    _: KW_ONLY
    tick: timedelta
    misfire_after: timedelta
    work_seconds: float

    async def fire(self, due: list[Occurrence], *, trusted_until: float) -> bool:
        ours = await self.store.occurrences.ours(due)
        CONFLICTS.inc(len(due) - len(ours))
        owned = [(occurrence, _owner_of(occurrence)) for occurrence in ours]
        ids = list({owner.id for _, owner in owned if owner.kind == SCHEDULE})
        schedules = await self.store.schedules.many(ids, small=True) if ids else {}
        days = await find_days(self.store, schedules.values())
        await fault("clock.after_look")
        _check_trusted(trusted_until)
        callbacks = [(occurrence, schedules.get(owner.id)) for occurrence, owner in owned if owner.kind == SCHEDULE]
        moved = await self._callbacks(callbacks, days, trusted_until)
        await self._begin_work([(occurrence, owner.kind) for occurrence, owner in owned if owner.kind != SCHEDULE])
        return moved

    async def _callbacks(self, due: Sequence[Owned], days: Mapping[str, Days], trusted_until: float) -> bool:
        if not due:
            return False
        now = self.time.reckon()
        judged, without = self._judge(due, days, now)
        await self.store.occurrences.complete(without[Verdict.VOID])
        await self.store.occurrences.retry([_wait(occurrence, now) for occurrence in without[Verdict.WAIT]])
        if held := judged[Verdict.HOLD]:
            schedule_ids = {schedule.id for _, schedule in held}
            await self.settlement.hold_back([occurrence for occurrence, _ in held], list(schedule_ids))
        if moving := judged[Verdict.FOLLOW]:
            await self.settlement.follow(moving)
        skipped = [self._skip(occurrence, schedule, now) for occurrence, schedule in judged[Verdict.SKIP]]
        moved = await self._attempt_and_settle(judged[Verdict.FIRE], skipped, trusted_until)
        return bool(moving) or any(occurrence.due <= now + self.tick for occurrence in moved)

    def _judge(
        self, due: Sequence[Owned], days: Mapping[str, Days], now: datetime
    ) -> tuple[defaultdict[Verdict, list[Due]], defaultdict[Verdict, list[Occurrence]]]:
        """The verdicts about occurrences of a schedule, and about those without one (`WAIT` and `VOID`)."""
        judged: defaultdict[Verdict, list[Due]] = defaultdict(list)
        without: defaultdict[Verdict, list[Occurrence]] = defaultdict(list)
        for occurrence, schedule in due:
            excluded = None if schedule is None else days.get(schedule.id)
            verdict = judge(schedule, occurrence, now, tick=self.tick, misfire_after=self.misfire_after, days=excluded)
            if schedule is None or verdict is Verdict.WAIT or verdict is Verdict.VOID:
                without[verdict].append(occurrence)
            else:
                judged[verdict].append((occurrence, schedule))
        return judged, without

    def _skip(self, occurrence: Occurrence, schedule: Schedule, now: datetime) -> Attempt:
        allowed = allowed_lateness(schedule.definition.misfire, self.misfire_after)
        assert allowed is not None  # otherwise the rule skips nothing
        return Attempt(occurrence, schedule, now, skipped=True, passed_over=now - allowed)

    async def _attempt_and_settle(
        self, due: list[Due], skipped: list[Attempt], trusted_until: float
    ) -> list[Occurrence]:
        now = self.time.reckon()
        buried = [not_attempted(occurrence, schedule, now) for occurrence, schedule in due if occurrence.is_poisonous]
        healthy = [(occurrence, schedule) for occurrence, schedule in due if not occurrence.is_poisonous]
        # If a worker makes an attempt, the worker stores its beginning.
        suspects = [
            occurrence
            for occurrence, schedule in healthy
            if occurrence.is_suspect and not isinstance(schedule.definition.callback, ByWorker)
        ]
        try:
            lost = await self._begin(suspects, trusted_until)
            attempts, moved = await self._attempt([entry for entry in healthy if entry[0].id not in lost])
            return moved + await self.settlement.settle(skipped + buried + attempts)
        except Unavailable:
            await self.store.occurrences.acquit(suspects)
            raise

    async def _begin(self, suspects: Sequence[Occurrence], trusted_until: float) -> set[str]:
        """Store that these attempts begin; return the ids that this process no longer owns."""
        lost = {suspect.id for suspect in suspects if not await self.store.occurrences.begin(suspect)}
        if suspects:
            CONFLICTS.inc(len(lost))
            _check_trusted(trusted_until)
        return lost

    async def _attempt(self, due: list[Due]) -> tuple[list[Attempt], list[Occurrence]]:
        now = self.time.reckon()
        await fault("clock.before_publish")
        attempts, moved = await self.deliveries.deliver(due, now)
        await fault("clock.after_publish")
        return attempts, moved

    async def _begin_work(self, due: Sequence[tuple[Occurrence, str]]) -> None:
        gate = asyncio.Semaphore(_WORK_AT_ONCE)
        try:
            async with asyncio.timeout(self.work_seconds):
                await asyncio.gather(*(self._begin_or_retry(occurrence, kind, gate) for occurrence, kind in due))
        except TimeoutError:
            log.warning("work waits for the end of its lease", occurrences=len(due))

    async def _begin_or_retry(self, occurrence: Occurrence, kind: str, gate: asyncio.Semaphore) -> None:
        """Start the work. Unreadable work comes back after `_LATER`: a process of another version may know it."""
        handler = self.on_due.get(kind)
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
                    await self.store.occurrences.complete([occurrence])

    async def _retry(self, occurrence: Occurrence, after: timedelta) -> None:
        moment = self.time.reckon() + after
        await self.store.occurrences.retry([PutOff(occurrence, moment, occurrence.attempts)])


def _owner_of(occurrence: Occurrence) -> Owner:
    """The occurrence's owner; one without a kind if this process cannot read it."""
    try:
        return read_owner(occurrence.owner)
    except ValueError:
        return Owner("", occurrence.owner)


def _wait(occurrence: Occurrence, now: datetime) -> PutOff:
    """A missing schedule comes within a moment or never, so the pauses grow."""
    pause = max((now - occurrence.accepted_at) / 2, _SHORTEST_WAIT)
    return PutOff(occurrence, now + pause, occurrence.attempts, attempt_ended=False)


def _check_trusted(until: float) -> None:
    if asyncio.get_running_loop().time() >= until:
        raise Unavailable("MongoDB answered so late that the leases may have ended")
