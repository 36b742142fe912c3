"""The days that schedules exclude, and the series that follow a changed calendar.

A process that fires reads the calendars right before it, so a day that is added to a calendar counts at once. A
removed day takes effect within one sweep: the schedulers find the changed calendar by its mark. They look once more
after `_SETTLED_AFTER`, because a process that had read the calendar before may have stored a series.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

from shared.clock.rules.calendars import Calendar, Days
from shared.clock.rules.following import replan
from shared.clock.rules.occurrences import Occurrence, OccurrenceKind
from shared.clock.rules.schedules import Definition, Schedule, calendar_ids
from shared.runtime.loops import Turns
from shared.store import Store
from shared.time import DatabaseTime

_CHANGED, _PAGE = 10, 500
_SETTLED_AFTER = timedelta(minutes=1)


class _Excluding(Protocol):
    """A schedule, or one that a caller asks for."""

    @property
    def id(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def definition(self) -> Definition: ...


async def find_days(store: Store, schedules: Iterable[_Excluding]) -> dict[str, Days]:
    """The days of the schedules that exclude any, by the id of the schedule. A calendar that is gone excludes none.
    Schedules with the same calendars share the `Days`, which remember shifts."""
    wanted = {each.id: calendar_ids(each.namespace, each.definition) for each in schedules if each.definition.exclude}
    if not wanted:
        return {}
    found = await store.calendars.many(sorted({id for ids in wanted.values() for id in ids}))
    shared = {ids: Days([found[id] for id in ids if id in found]) for ids in set(wanted.values())}
    return {schedule_id: shared[ids] for schedule_id, ids in wanted.items()}


async def find_days_of(store: Store, schedule: _Excluding) -> Days | None:
    return (await find_days(store, [schedule])).get(schedule.id)


class CalendarFollowing:
    def __init__(self, store: Store, time: DatabaseTime) -> None:
        self._store = store
        self._time = time

    async def run_once(self) -> int:
        """Have the series of all schedules follow the calendars that were changed; returns how many calendars."""
        now, looked_at = await self._time.now(), 0
        while changed := await self._store.calendars.find_changed(before=now, limit=_CHANGED):
            for calendar in changed:
                await self._follow(calendar, now)
            looked_at += len(changed)
        return looked_at

    async def _follow(self, calendar: Calendar, now: datetime) -> None:
        after = ""
        while page := await self._store.schedules.page_excluding(calendar.id, after=after, limit=_PAGE):
            await self._align(page)
            after = page[-1].id
        settled_at = calendar.updated_at + _SETTLED_AFTER
        await self._store.calendars.look_again(calendar, settled_at if now < settled_at else None)

    async def _align(self, schedules: list[Schedule]) -> None:
        days, turns = await find_days(self._store, schedules), Turns()
        moves: list[tuple[Occurrence, Occurrence]] = []
        for schedule in schedules:
            found = await self._store.occurrences.find_upcoming(
                schedule.owner, 1, generation=schedule.generation, kind=OccurrenceKind.SERIES
            )
            for series in found:
                moved = replan(schedule.definition, schedule.key, series, days[schedule.id])
                await turns.give()
                if moved is not None and moved.place != series.place:
                    moves.append((series, moved))
        await self._store.occurrences.align(moves)
