"""The days that schedules exclude, and the series that follow a changed calendar.

A process that fires reads the calendars right before it (`Verdict.MOVE`), so a day that is added to a calendar counts
at once. A day that is taken off counts within a sweep: the schedulers find the changed calendar by its mark.
"""

from collections.abc import Iterable
from typing import Protocol

from shared.clock.rules.calendars import Days
from shared.clock.rules.instants import at_planned, find_planned
from shared.clock.rules.occurrences import Occurrence, OccurrenceKind
from shared.clock.rules.schedules import Definition, Schedule, calendar_ids
from shared.store import Store
from shared.time import DatabaseTime

_CHANGED, _PAGE = 10, 500


class _Excluding(Protocol):
    """A schedule, or one that a caller asks for."""

    @property
    def id(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def definition(self) -> Definition: ...


async def find_days(store: Store, schedules: Iterable[_Excluding]) -> dict[str, Days]:
    """The days of the schedules that exclude any, by the id of the schedule. A calendar that is gone excludes none."""
    wanted = {each.id: calendar_ids(each.namespace, each.definition) for each in schedules if each.definition.exclude}
    if not wanted:
        return {}
    found = await store.calendars.many(sorted({id for ids in wanted.values() for id in ids}))
    return {schedule_id: Days([found[id] for id in ids if id in found]) for schedule_id, ids in wanted.items()}


class CalendarFollowing:
    def __init__(self, store: Store, time: DatabaseTime) -> None:
        self._store = store
        self._time = time

    async def run_once(self) -> int:
        """Have the series of all schedules follow the calendars that were changed; returns how many calendars."""
        changed = await self._store.calendars.find_changed(limit=_CHANGED)
        for calendar in changed:
            after = ""
            while page := await self._store.schedules.page_excluding(calendar.id, after=after, limit=_PAGE):
                await self._align(page)
                after = page[-1].id
            await self._store.calendars.end_change(calendar.id, calendar.updated_at)
        return len(changed)

    async def _align(self, schedules: list[Schedule]) -> None:
        days, now = await find_days(self._store, schedules), await self._time.now()
        moves: list[tuple[Occurrence, Occurrence]] = []
        for schedule in schedules:
            found = await self._store.occurrences.find_upcoming(
                schedule.owner, 1, generation=schedule.generation, kind=OccurrenceKind.SERIES, after=now
            )
            for series in found:
                planned = find_planned(schedule.definition, schedule.key, now, days[schedule.id])
                if planned is not None:
                    moves.append((series, at_planned(series, schedule.definition, schedule.key, planned)))
        await self._store.occurrences.align([(old, new) for old, new in moves if old.due != new.due], now)
