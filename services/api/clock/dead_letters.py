"""`/dead-letters`: instants of schedules that were refused to the last attempt, to be tried again or given up.
`?namespace=` names another namespace, over which the caller needs a role; what only looks takes `*` for all."""

from functools import partial
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.accounts.namespaces import NAMESPACE, NAMESPACES, namespace_of, namespaces_of
from services.api.clock.dead_letter_view import (
    DeadLetterView,
    ErrorCountView,
    WholeDeadLetterView,
    dead_letter_view,
    error_view,
    whole_view,
)
from services.api.http import paging, wire
from services.api.http.rights import OPERATE_NAMESPACE, VIEW_NAMESPACE, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from shared.domain.clock.dead_letters import LOOKED_AT, LetterPlace, place_of
from shared.domain.clock.outcomes import DeadLetter
from shared.domain.errors import Conflict, NotFound
from shared.flow.clock.schedules import ScheduleFlow
from shared.store import Store

_NAMED = Parameter(name="key", description="Only those of the schedule with this key.", schema={"type": "string"})

LETTERS = "/dead-letters"
LETTER = "/dead-letters/{letter_id:str}"
_route = partial(Route, segments={"letter_id": {"type": "string", "description": "The id of the dead letter."}})


class RetryView(Struct, frozen=True):
    """The dead letter that is tried again."""

    id: str


class DeadLettersResource(Resource):
    """The routes of dead letters."""

    def __init__(self, store: Store, flow: ScheduleFlow) -> None:
        self._store = store
        self._flow = flow

    @_route(
        "GET", LETTERS, summary="List the dead letters of a namespace, the newest first.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[DeadLetterView]}, parameters=(_NAMED, NAMESPACES),
        paged=True,
    )  # fmt: skip
    async def list_dead_letters(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = paging.read_page(request, LetterPlace)
        letters = await self._store.dead_letters.page(
            namespaces_of(request), key=paging.first(request, "key"), before=asked.after, limit=asked.limit
        )
        headers = paging.links(request, asked, letters, place_of)
        personal = sees_personal_data(request)
        return wire.answer([dead_letter_view(letter, personal=personal) for letter in letters], headers=headers)

    @_route(
        "GET", LETTERS + "/errors",
        summary=f"Tell what the last {LOOKED_AT:,} dead letters of a namespace died of, the most frequent error first.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[ErrorCountView]}, parameters=(_NAMED, NAMESPACES),
    )  # fmt: skip
    async def count_dead_letter_errors(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        counted = await self._store.dead_letters.count_errors(
            namespaces_of(request), key=paging.first(request, "key"), last=LOOKED_AT
        )
        personal = sees_personal_data(request)
        return wire.answer([error_view(each, personal=personal) for each in counted])

    @_route(
        "GET", LETTER, summary="Show a dead letter, and what a retry would do now.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: WholeDeadLetterView}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(NAMESPACES,),
    )  # fmt: skip
    async def get_dead_letter(self, request: Request[Any, Any, Any], letter_id: FromPath[str]) -> Response[bytes]:
        letter = await self._find(namespaces_of(request), letter_id)
        schedules = await self._store.schedules.many([letter.schedule_id])
        schedule = schedules.get(letter.schedule_id)
        return wire.answer(whole_view(letter, schedule, personal=sees_personal_data(request)))

    @_route(
        "POST", LETTER + "/retry", summary="Try a dead letter again, with what its schedule says now.",
        act="dead-letter.retry", who=OPERATE_NAMESPACE, answers={HTTPStatus.ACCEPTED: RetryView},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), parameters=(NAMESPACE,),
    )  # fmt: skip
    async def retry_dead_letter(self, request: Request[Any, Any, Any], letter_id: FromPath[str]) -> Response[bytes]:
        letter = await self._find(namespace_of(request), letter_id)
        retried = await self._flow.retry([letter])
        if retried.underway:
            raise Conflict("it is being attempted right now: ask again in a moment", field="id", value=letter_id)
        if not retried.again:
            raise Conflict("its schedule is gone: it can only be discarded", field="id", value=letter_id)
        return wire.answer(RetryView(letter.id), HTTPStatus.ACCEPTED)

    @_route(
        "POST", LETTER + "/discard", summary="Give a dead letter up.",
        act="dead-letter.discard", who=OPERATE_NAMESPACE,
        answers={HTTPStatus.NO_CONTENT: None}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(NAMESPACE,),
    )  # fmt: skip
    async def discard_dead_letter(self, request: Request[Any, Any, Any], letter_id: FromPath[str]) -> Response[None]:
        letter = await self._find(namespace_of(request), letter_id)
        await self._store.dead_letters.remove([letter])
        return wire.empty()

    async def _find(self, namespace: str, letter_id: str) -> DeadLetter:
        letter = await self._store.dead_letters.get(namespace, letter_id)
        if letter is None:
            raise NotFound("there is no dead letter with this id", field="id", value=letter_id)
        return letter
