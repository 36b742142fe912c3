"""Backfills fire the instants of a past time now, each once.

    note the backfill in the schedule ──> store its occurrences ──> note that it is done

The note is a compare-and-set, and the request that wins stores the occurrences. If its process dies, a later request
goes on after `_TAKEN_OVER_AFTER`: it leaves out the occurrences that have an outcome, so none fires again.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice

from shared.clock.calendars import find_days
from shared.clock.rules.instants import instants_between
from shared.clock.rules.occurrences import at_backfill, outcome_id
from shared.clock.rules.schedules import Backfill, Schedule
from shared.core.errors import Conflict, Invalid
from shared.runtime.faults import fault
from shared.store import Store
from shared.time import DatabaseTime

INSTANTS = 10_000
BACKFILLS = 100
_TAKEN_OVER_AFTER = timedelta(minutes=1)
_MILLISECOND = timedelta(milliseconds=1)


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
                if now < begun.at + _TAKEN_OVER_AFTER:
                    raise Conflict("another backfill of this schedule is under way: try again in a minute", field="key")
                await self._store_occurrences(schedule, begun)
                continue
            # Its time is its name among the backfills of the schedule.
            at = max([now, *(each.at + _MILLISECOND for each in schedule.backfills)])
            backfill = Backfill(since, until, at)
            dues = await self._find_dues(schedule, backfill)
            if not dues:
                return 0
            if len(dues) > INSTANTS:
                reason = f"more than {INSTANTS:,} instants lie between: ask for a part of them"
                raise Invalid(reason, field="from")
            if len(schedule.backfills) >= BACKFILLS:
                raise Conflict(f"a schedule takes {BACKFILLS} backfills; replace it to begin anew", field="key")
            if await self._store.schedules.begin_backfill(schedule, backfill):
                await fault("schedule.after_backfill")
                await self._store_occurrences(schedule, backfill)
                return len(dues)
        return None

    async def _find_dues(self, schedule: Schedule, backfill: Backfill) -> Sequence[datetime]:
        """The instants of the backfill that no other one has fired, at most `INSTANTS` and one more."""
        days = (await find_days(self._store, [schedule])).get(schedule.id)
        dues = instants_between(schedule.definition, schedule.key, backfill.since, backfill.until, days)
        others = [each for each in schedule.backfills if each.done]
        left = (due for due in dues if not any(other.covers(due) for other in others))
        return list(islice(left, INSTANTS + 1))

    async def _store_occurrences(self, schedule: Schedule, backfill: Backfill) -> None:
        dues = await self._find_dues(schedule, backfill)
        owner, generation, size = schedule.owner, schedule.generation, schedule.size
        drafted = [at_backfill(owner, generation, due, at=backfill.at, size=size) for due in dues]
        ended = await self._store.outcomes.find([outcome_id(each, 1) for each in drafted])
        # Retention must not remove a finished schedule while these are pending.
        await self._store.schedules.keep_finished([schedule.id], at=await self._time.now())
        await self._store.occurrences.add([each for each in drafted if outcome_id(each, 1) not in ended])
        await self._store.schedules.end_backfill(schedule, backfill)
