"""The next instants of one namespace's schedules, or of all, by the clock's own index.

The window is a minute at first and doubles until it holds enough or reaches its end. The index does not contain
namespaces: if others have many instants in the window, the look ends at a bound and reports how far it came.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from shared.clock.rules.occurrences import Occurrence, OccurrenceKind, read_owner
from shared.clock.rules.schedules import owners_of, read_schedule_owner
from shared.store import Store
from shared.time import DatabaseTime

ENOUGH = 50
FIRST_WINDOW = timedelta(minutes=1)
LAST_WINDOW = timedelta(days=1)
LOOKED_AT = 5_000


class DueInstant(Struct, frozen=True):
    namespace: str
    key: str
    occurrence: Occurrence


class DueNext(Struct, frozen=True):
    """The first instants before `until`, which is the end of the look."""

    now: datetime
    until: datetime
    instants: Sequence[DueInstant]


class DueLooker:
    def __init__(self, store: Store, time: DatabaseTime) -> None:
        self._store = store
        self._time = time

    async def look(self, namespace: str, *, within: timedelta = LAST_WINDOW) -> DueNext:
        """At most `ENOUGH` instants that are due within `within`, of this namespace, or of all if it is `""`."""
        now, window = await self._time.now(), min(FIRST_WINDOW, within)
        while True:
            found = await self._find(namespace, now + window)
            reached = await self._store.occurrences.find_nth_visible(LOOKED_AT, before=now + window)
            if reached is not None or len(found) >= ENOUGH or window >= within:
                until = found[-1].visible_at if len(found) >= ENOUGH else reached or now + window
                return DueNext(now, until, await self._name(found))
            window = min(2 * window, within)

    async def _find(self, namespace: str, before: datetime) -> list[Occurrence]:
        group = owners_of(namespace)
        return await self._store.occurrences.find_due(group, before=before, look_at=LOOKED_AT, limit=ENOUGH)

    async def _name(self, found: Sequence[Occurrence]) -> list[DueInstant]:
        """Leave out instants whose schedule was replaced, deleted or paused."""
        ids = {occurrence.id: read_owner(occurrence.owner).id for occurrence in found}
        active = await self._store.schedules.find_active(list(set(ids.values())))
        return [
            DueInstant(*read_schedule_owner(occurrence.owner), occurrence)
            for occurrence in found
            if active.get(ids[occurrence.id]) == occurrence.generation or occurrence.kind is OccurrenceKind.ASKED
        ]
