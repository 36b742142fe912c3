"""`/schedules/due`: the next instants of one namespace's schedules, or of all, by the clock's own index.

The window is a minute at first and doubles until it holds enough or reaches its end. The index does not contain
namespaces: if others have many instants in the window, the look ends at a bound and reports how far it came.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from msgspec import Struct

from services.api.accounts.apps import NAMESPACES, namespaces_of
from services.api.clock.schedules import SCHEDULES
from services.api.http import paging, wire
from services.api.http.rights import VIEW_NAMESPACE
from services.api.http.routes import Parameter, Resource, Route
from services.api.http.wire import Timestamp
from shared.clock.rules.occurrences import Occurrence, OccurrenceKind, read_owner
from shared.clock.rules.schedules import owners_of, read_schedule_owner
from shared.core.instants import format_instant
from shared.store import Store
from shared.time import DatabaseTime

ENOUGH = 50
FIRST_WINDOW = timedelta(minutes=1)
LAST_WINDOW = timedelta(days=1)
LOOKED_AT = 5_000
_MOST_SECONDS = int(LAST_WINDOW.total_seconds())
_WITHIN = Parameter(
    name="within",
    description="How many seconds to look ahead at most; by default a day.",
    schema={"type": "integer", "minimum": 1, "maximum": _MOST_SECONDS, "default": _MOST_SECONDS},
)


class DueInstantView(Struct, frozen=True, kw_only=True):
    """An instant of the schedule with this key. It fires at `at`: at `due`, or when it is tried again. `attempts` were
    refused. `kind` is `once`, `series` (of a recurrence) or `asked` (fired by hand)."""

    namespace: str
    key: str
    due: Timestamp
    at: Timestamp
    attempts: int
    kind: OccurrenceKind


class DueView(Struct, frozen=True, kw_only=True):
    """The next occurrences as of `as_of`, the first one first: all that are due before `until`."""

    as_of: Timestamp
    until: Timestamp
    instants: list[DueInstantView]


def _view(occurrence: Occurrence) -> DueInstantView:
    namespace, key = read_schedule_owner(occurrence.owner)
    return DueInstantView(
        namespace=namespace,
        key=key,
        due=format_instant(occurrence.due),
        at=format_instant(occurrence.fires_at),
        attempts=occurrence.attempts,
        kind=occurrence.kind,
    )


class DueResource(Resource):
    def __init__(self, store: Store, time: DatabaseTime) -> None:
        self._store = store
        self._time = time

    @Route(
        "GET", SCHEDULES + "/due", summary=f"Tell what of a namespace fires next: at most {ENOUGH} instants.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: DueView}, parameters=(NAMESPACES, _WITHIN),
    )  # fmt: skip
    async def list_due_instants(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        rule = f"within is an integer from 1 to {_MOST_SECONDS} (seconds)"
        within = paging.read_integer(request, _WITHIN.name, most=_MOST_SECONDS, default=_MOST_SECONDS, rule=rule)
        return wire.answer(await self._look(namespaces_of(request), timedelta(seconds=within)))

    async def _look(self, namespace: str, within: timedelta) -> DueView:
        """At most `ENOUGH` instants that are due within `within`, of this namespace, or of all if it is `""`."""
        now, window = await self._time.now(), min(FIRST_WINDOW, within)
        while True:
            found = await self._find(namespace, now + window)
            reached = await self._store.occurrences.find_nth_visible(LOOKED_AT, before=now + window)
            if reached is not None or len(found) >= ENOUGH or window >= within:
                until = found[-1].visible_at if len(found) >= ENOUGH else reached or now + window
                instants = await self._show(found)
                return DueView(as_of=format_instant(now), until=format_instant(until), instants=instants)
            window = min(2 * window, within)

    async def _find(self, namespace: str, before: datetime) -> list[Occurrence]:
        group = owners_of(namespace)
        return await self._store.occurrences.find_due(group, before=before, look_at=LOOKED_AT, limit=ENOUGH)

    async def _show(self, found: Sequence[Occurrence]) -> list[DueInstantView]:
        """Leave out instants whose schedule was replaced, deleted or paused."""
        ids = {occurrence.id: read_owner(occurrence.owner).id for occurrence in found}
        active = await self._store.schedules.find_active(list(set(ids.values())))
        return [
            _view(each)
            for each in found
            if active.get(ids[each.id]) == each.generation or each.kind is OccurrenceKind.ASKED
        ]
