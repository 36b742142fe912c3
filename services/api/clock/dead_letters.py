"""`/dead-letters`: occurrences whose last attempt was refused, to be tried again or discarded."""

from functools import partial
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct
from msgspec.structs import asdict

from services.api.accounts.apps import NAMESPACE, NAMESPACES, namespace_of, namespaces_of
from services.api.clock.callback_body import CallbackBody, callback_view, redact
from services.api.http import paging, wire
from services.api.http.rights import OPERATE_NAMESPACE, VIEW_NAMESPACE, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from services.api.http.wire import Timestamp, hide
from shared.clock.rules.occurrences import LOOKED_AT, DeadLetter, ErrorCount, LetterPlace, place_of
from shared.clock.rules.schedules import Schedule
from shared.clock.schedules import ScheduleFlow
from shared.core.errors import Conflict, NotFound
from shared.core.instants import format_instant
from shared.store import Store


class DeadLetterView(Struct, frozen=True, kw_only=True):
    """An instant that was refused to the last attempt; `id` is its message id."""

    id: str
    namespace: str
    key: str
    due: Timestamp
    died_at: Timestamp
    attempts: int
    error: str
    redacted: bool = False


class WholeDeadLetterView(DeadLetterView, frozen=True, kw_only=True):
    """A dead letter with what a retry would do now: `null` where its schedule is gone, so that it can only be
    discarded."""

    callback: CallbackBody | None


class ErrorCountView(Struct, frozen=True, kw_only=True):
    """How many of the last dead letters had this error, and when the last of these died."""

    error: str
    count: int
    last_died_at: Timestamp


def dead_letter_view(letter: DeadLetter, *, personal: bool = True) -> DeadLetterView:
    """A dead letter as it is shown, without personal data unless `personal`: a target may answer with what it got."""
    return DeadLetterView(
        id=letter.id,
        namespace=letter.namespace,
        key=letter.key,
        due=format_instant(letter.due),
        died_at=format_instant(letter.died_at),
        attempts=letter.attempts,
        error=letter.error if personal else hide(letter.error),
        redacted=not personal,
    )


def whole_view(letter: DeadLetter, schedule: Schedule | None, *, personal: bool) -> WholeDeadLetterView:
    callback = None
    if schedule is not None:
        told = schedule.definition.callback
        callback = callback_view(told if personal else redact(told))
    return WholeDeadLetterView(**asdict(dead_letter_view(letter, personal=personal)), callback=callback)


def error_view(counted: ErrorCount, *, personal: bool) -> ErrorCountView:
    return ErrorCountView(
        error=counted.error if personal else hide(counted.error),
        count=counted.count,
        last_died_at=format_instant(counted.last_died_at),
    )


_NAMED = Parameter(name="key", description="Only those of the schedule with this key.", schema={"type": "string"})
LETTERS = "/dead-letters"
LETTER = "/dead-letters/{letter_id:str}"
_route = partial(Route, segments={"letter_id": {"type": "string", "description": "The id of the dead letter."}})


class RetryView(Struct, frozen=True):
    """The dead letter that is tried again."""

    id: str


class DeadLettersResource(Resource):
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
