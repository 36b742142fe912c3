"""Backfills fire the instants of a past time now, each once.

    note the backfill in the schedule ──> store its occurrences ──> note that it is done

The note is a compare-and-set, and the request that wins stores the occurrences. If its process dies, the next backfill
of the schedule takes this one over after `_TAKEN_OVER_AFTER`: it leaves out the occurrences that have an outcome, so
none fires again. A request stores occurrences only for `_STORED_WITHIN` after its own note, so two never store them at
once. After `_GIVEN_UP_AFTER` outcomes may be gone, so the occurrences that are not stored never fire.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice

from msgspec.structs import replace

from shared.clock.calendars import find_days_of
from shared.clock.rules.instants import instants_between
from shared.clock.rules.occurrences import at_backfill
from shared.clock.rules.outcomes import outcome_id
from shared.clock.rules.schedules import Backfill, Schedule
from shared.core.errors import Conflict, Invalid, Unavailable
from shared.core.instants import MILLISECOND
from shared.runtime.faults import fault
from shared.store import Store
from shared.time import DatabaseTime

INSTANTS = 10_000
BACKFILLS = 100
_TAKEN_OVER_AFTER = timedelta(minutes=1)
_STORED_WITHIN = _TAKEN_OVER_AFTER / 2
_GIVEN_UP_AFTER = timedelta(days=1)


class BackfillFlow:
    def __init__(self, store: Store, time: DatabaseTime) -> None:
        self._store = store
        self._time = time

    async def run(self, id: str, since: datetime, until: datetime) -> int | None:
        """Fire the instants between; returns how many, or `None` if there is no such schedule. Raises `Invalid` for
        times that are not past, and `Conflict` while another backfill of the schedule is under way."""
        now = await self._time.now()
        if since > until:
            raise Invalid("from must not be after to", field="from")
        if until > now:
            raise Invalid("a backfill fires past instants: to must not lie ahead", field="to")
        while (schedule := await self._store.schedules.get(id)) is not None:
            if begun := next((each for each in schedule.backfills if not each.done), None):
                await self._complete(schedule, begun)
                continue
            now = await self._time.now()
            # `at` identifies a backfill within its schedule.
            at = max([now, *(each.at + MILLISECOND for each in schedule.backfills)])
            backfill = Backfill(since, until, at)
            dues = await self._find_dues(schedule, backfill)
            if not dues:
                return 0
            if len(dues) > INSTANTS:
                reason = f"more than {INSTANTS:,} instants lie between: ask for a part of them"
                raise Invalid(reason, field="from")
            if len(schedule.backfills) >= BACKFILLS:
                raise Conflict(f"a schedule takes {BACKFILLS} backfills; replace it to begin anew", field="key")
            if await self._store.schedules.note_backfill(schedule, backfill):
                await fault("schedule.after_backfill")
                await self._store_occurrences(schedule, backfill, noted_at=at)
                return len(dues)
        return None

    async def _complete(self, schedule: Schedule, backfill: Backfill) -> None:
        """Complete another request's backfill."""
        now = await self._time.now()
        if now < (backfill.taken_over_at or backfill.at) + _TAKEN_OVER_AFTER:
            raise Conflict("another backfill of this schedule is under way: try again in a minute", field="key")
        if now >= backfill.at + _GIVEN_UP_AFTER:
            await self._store.schedules.end_backfill(schedule, backfill)
        elif await self._store.schedules.note_backfill(schedule, replace(backfill, taken_over_at=now)):
            await self._store_occurrences(schedule, backfill, noted_at=now)

    async def _find_dues(self, schedule: Schedule, backfill: Backfill) -> Sequence[datetime]:
        """The instants of the backfill that no other one has fired, at most `INSTANTS` and one more."""
        days = await find_days_of(self._store, schedule)
        dues = instants_between(schedule.definition, schedule.key, backfill.since, backfill.until, days)
        others = [each for each in schedule.backfills if each.done]
        left = (due for due in dues if not any(other.since <= due <= other.until for other in others))
        return list(islice(left, INSTANTS + 1))

    async def _store_occurrences(self, schedule: Schedule, backfill: Backfill, *, noted_at: datetime) -> None:
        dues = await self._find_dues(schedule, backfill)
        owner, generation, size = schedule.owner, schedule.generation, schedule.size
        drafted = [at_backfill(owner, generation, due, at=backfill.at, size=size) for due in dues]
        # Retention must not remove a finished schedule while these are pending.
        await self._store.schedules.keep_finished([schedule.id], at=noted_at)
        ended = await self._store.outcomes.find([outcome_id(each, 1) for each in drafted])
        if await self._time.now() > noted_at + _STORED_WITHIN:
            raise Unavailable("reading the outcomes took too long")  # another request may complete the backfill
        await self._store.occurrences.add([each for each in drafted if outcome_id(each, 1) not in ended])
        await self._store.schedules.end_backfill(schedule, backfill)
