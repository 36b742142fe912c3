"""`GET /schedules/due`: what fires next."""

from datetime import timedelta
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from msgspec import Struct

from services.api.accounts.namespaces import NAMESPACES, namespaces_of
from services.api.clock.schedules import SCHEDULES
from services.api.http import paging, wire
from services.api.http.rights import VIEW_NAMESPACE
from services.api.http.routes import Parameter, Resource, Route
from services.api.http.wire import Timestamp
from shared.domain.clock.occurrences import OccurrenceKind
from shared.domain.instants import format_instant
from shared.flow.clock.due import ENOUGH, LAST_WINDOW, DueInstant, DueLooker

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


class DueResource(Resource):
    """The route of what fires next."""

    def __init__(self, looker: DueLooker) -> None:
        self._looker = looker

    @Route(
        "GET", SCHEDULES + "/due", summary=f"Tell what of a namespace fires next: at most {ENOUGH} instants.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: DueView}, parameters=(NAMESPACES, _WITHIN),
    )  # fmt: skip
    async def list_due_instants(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        rule = f"within is an integer from 1 to {_MOST_SECONDS} (seconds)"
        within = paging.read_integer(request, _WITHIN.name, most=_MOST_SECONDS, default=_MOST_SECONDS, rule=rule)
        told = await self._looker.look(namespaces_of(request), within=timedelta(seconds=within))
        instants = [_instant_view(instant) for instant in told.instants]
        return wire.answer(DueView(as_of=format_instant(told.now), until=format_instant(told.until), instants=instants))


def _instant_view(instant: DueInstant) -> DueInstantView:
    occurrence = instant.occurrence
    return DueInstantView(
        namespace=instant.namespace,
        key=instant.key,
        due=format_instant(occurrence.due),
        at=format_instant(occurrence.fires_at),
        attempts=occurrence.attempts,
        kind=occurrence.kind,
    )
