"""`/dead-letters`: occurrences whose last attempt was refused, to be tried again or discarded."""

from functools import partial
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Raw
from msgspec.structs import asdict

from carillon.wire.clock import DeadLetter, ErrorCount, RetriedDeadLetter, WholeDeadLetter
from services.api.accounts.apps import NAMESPACE, NAMESPACES, namespace_of, namespaces_of
from services.api.clock.callbacks import show_callback
from services.api.http import bodies, paging
from services.api.http.bodies import Timestamp, hide
from services.api.http.rights import OPERATE_NAMESPACE, VIEW_NAMESPACE, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from shared.clock.rules import outcomes as rules
from shared.clock.rules.outcomes import LetterPlace, place_of
from shared.clock.schedules import ScheduleFlow
from shared.core.errors import Conflict, NotFound
from shared.core.instants import format_instant
from shared.store import Store

LOOKED_AT = 1_000
"""The number of letters that are grouped by error: the last ones."""

Shown = DeadLetter[Timestamp]
Whole = WholeDeadLetter[Timestamp, Raw]


def show_dead_letter(letter: rules.DeadLetter, *, personal: bool) -> DeadLetter[str]:
    """The dead letter. Unless `personal`, its error is hidden: a target may repeat the payload in its answer."""
    return DeadLetter(
        id=letter.id,
        namespace=letter.namespace,
        key=letter.key,
        due=format_instant(letter.due),
        died_at=format_instant(letter.died_at),
        attempts=letter.attempts,
        error=letter.error if personal else hide(letter.error),
        redacted=not personal,
    )


def show_error(counted: rules.ErrorCount, *, personal: bool) -> ErrorCount[str]:
    return ErrorCount(
        error=counted.error if personal else hide(counted.error),
        count=counted.count,
        last_died_at=format_instant(counted.last_died_at),
    )


_NAMED = Parameter(name="key", description="Only those of the schedule with this key.", schema={"type": "string"})
LETTERS = "/dead-letters"
LETTER = "/dead-letters/{letter_id:str}"
_route = partial(Route, segments={"letter_id": {"type": "string", "description": "The id of the dead letter."}})


class DeadLettersResource(Resource):
    def __init__(self, store: Store, flow: ScheduleFlow) -> None:
        self._store = store
        self._flow = flow

    @_route(
        "GET", LETTERS, summary="List the dead letters of a namespace, the newest first.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[Shown]}, parameters=(_NAMED, NAMESPACES), paged=True,
    )  # fmt: skip
    async def list_dead_letters(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = paging.read_page(request, LetterPlace)
        letters = await self._store.dead_letters.page(
            namespaces_of(request), key=paging.first(request, "key"), before=asked.after, limit=asked.limit
        )
        headers = paging.links(request, asked, letters, place_of)
        personal = sees_personal_data(request)
        return bodies.answer([show_dead_letter(letter, personal=personal) for letter in letters], headers=headers)

    @_route(
        "GET", LETTERS + "/errors",
        summary=f"Tell what the last {LOOKED_AT:,} dead letters of a namespace died of, the most frequent error first.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[ErrorCount[Timestamp]]}, parameters=(_NAMED, NAMESPACES),
    )  # fmt: skip
    async def count_dead_letter_errors(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        counted = await self._store.dead_letters.count_errors(
            namespaces_of(request), key=paging.first(request, "key"), last=LOOKED_AT
        )
        personal = sees_personal_data(request)
        return bodies.answer([show_error(each, personal=personal) for each in counted])

    @_route(
        "GET", LETTER, summary="Show a dead letter, and what a retry would do now.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: Whole}, problems=(HTTPStatus.NOT_FOUND,), parameters=(NAMESPACES,),
    )  # fmt: skip
    async def get_dead_letter(self, request: Request[Any, Any, Any], letter_id: FromPath[str]) -> Response[bytes]:
        letter = await self._find(namespaces_of(request), letter_id)
        schedules = await self._store.schedules.many([letter.schedule_id])
        personal, callback = sees_personal_data(request), None
        if (schedule := schedules.get(letter.schedule_id)) is not None:
            callback = show_callback(schedule.definition.callback, personal=personal)
        shown = asdict(show_dead_letter(letter, personal=personal))
        return bodies.answer(WholeDeadLetter(**shown, body=callback))

    @_route(
        "POST", LETTER + "/retry", summary="Try a dead letter again, with what its schedule says now.",
        act="dead-letter.retry", who=OPERATE_NAMESPACE, answers={HTTPStatus.ACCEPTED: RetriedDeadLetter},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), parameters=(NAMESPACE,),
    )  # fmt: skip
    async def retry_dead_letter(self, request: Request[Any, Any, Any], letter_id: FromPath[str]) -> Response[bytes]:
        letter = await self._find(namespace_of(request), letter_id)
        retried = await self._flow.retry([letter])
        if retried.underway:
            raise Conflict("it is being attempted right now: ask again in a moment", field="id", value=letter_id)
        if not retried.again:
            raise Conflict("its schedule is gone: it can only be discarded", field="id", value=letter_id)
        return bodies.answer(RetriedDeadLetter(letter.id), HTTPStatus.ACCEPTED)

    @_route(
        "POST", LETTER + "/discard", summary="Give a dead letter up.",
        act="dead-letter.discard", who=OPERATE_NAMESPACE, answers={HTTPStatus.NO_CONTENT: None},
        problems=(HTTPStatus.NOT_FOUND,), parameters=(NAMESPACE,),
    )  # fmt: skip
    async def discard_dead_letter(self, request: Request[Any, Any, Any], letter_id: FromPath[str]) -> Response[None]:
        letter = await self._find(namespace_of(request), letter_id)
        await self._store.dead_letters.remove([letter])
        return bodies.empty()

    async def _find(self, namespace: str, letter_id: str) -> rules.DeadLetter:
        letter = await self._store.dead_letters.get(namespace, letter_id)
        if letter is None:
            raise NotFound("there is no dead letter with this id", field="id", value=letter_id)
        return letter
