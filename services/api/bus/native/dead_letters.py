"""`/bus/dead-letters`: events that nobody has taken, to be delivered again or given up. `?namespace=` names another
namespace, over which the caller needs a role."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import UNSET, Meta, Struct, UnsetType

from services.api.accounts.namespaces import NAMESPACE, namespace_of
from services.api.bus.native.dead_letter_view import (
    BusDeadLetterView,
    WholeBusDeadLetterView,
    bus_letter_view,
    whole_bus_letter_view,
)
from services.api.http import paging, wire
from services.api.http.rights import OPERATE_NAMESPACE, VIEW_NAMESPACE, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from services.api.http.strict_bodies import decode_body
from shared.domain.bus.dead_letters import BusLetterPlace, place_of_letter
from shared.flow.bus.dead_letters import MOST_AT_ONCE, BusDeadLetterFlow

BUS_LETTERS = "/bus/dead-letters"
BUS_LETTER = BUS_LETTERS + "/{letter_id:str}"

_NAMED = Parameter(name="key", description="Only those of the subscription with this key.", schema={"type": "string"})
_NOT_FOUND, _CONFLICT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
_route = partial(
    Route, segments={"letter_id": {"type": "string", "description": "The id of the dead letter: its delivery's."}},
    parameters=(NAMESPACE,),
)  # fmt: skip


class BusRetryFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters are retried: those of the subscription with this key; without one, all of a namespace."""

    key: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET


class BusRetryView(Struct, frozen=True):
    """The dead letter whose delivery is open again."""

    id: str


class BusRetriedView(Struct, frozen=True):
    """How many deliveries are open again. If there are `more`, ask again."""

    retried: int
    more: bool


_filter_decoder = msgspec.json.Decoder(BusRetryFilter)


class BusDeadLettersResource(Resource):
    """The routes of the bus's dead letters."""

    def __init__(self, flow: BusDeadLetterFlow) -> None:
        self._flow = flow

    @_route(
        "GET", BUS_LETTERS, summary="List the dead letters of a namespace's subscriptions, the newest first.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[BusDeadLetterView]}, parameters=(_NAMED, NAMESPACE),
        paged=True,
    )  # fmt: skip
    async def list_bus_dead_letters(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = paging.read_page(request, BusLetterPlace)
        letters = await self._flow.page(
            namespace_of(request), key=paging.first(request, "key"), before=asked.after, limit=asked.limit
        )
        headers = paging.links(request, asked, letters, place_of_letter)
        personal = sees_personal_data(request)
        return wire.answer([bus_letter_view(letter, personal=personal) for letter in letters], headers=headers)

    @_route(
        "GET", BUS_LETTER, summary="Show a dead letter with its events.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: WholeBusDeadLetterView}, problems=(_NOT_FOUND,),
    )  # fmt: skip
    async def get_bus_dead_letter(self, request: Request[Any, Any, Any], letter_id: FromPath[str]) -> Response[bytes]:
        letter = await self._flow.get(namespace_of(request), letter_id)
        return wire.answer(whole_bus_letter_view(letter, personal=sees_personal_data(request)))

    @_route(
        "POST", BUS_LETTER + "/retry", summary="Deliver a dead letter again, with the id that it had.",
        act="delivery.retry", who=OPERATE_NAMESPACE, answers={HTTPStatus.ACCEPTED: BusRetryView},
        problems=(_NOT_FOUND, _CONFLICT, HTTPStatus.GONE),
    )  # fmt: skip
    async def retry_bus_dead_letter(self, request: Request[Any, Any, Any], letter_id: FromPath[str]) -> Response[bytes]:
        letter = await self._flow.retry(namespace_of(request), letter_id)
        return wire.answer(BusRetryView(letter.id), HTTPStatus.ACCEPTED)

    @_route(
        "POST", BUS_LETTERS + "/retry",
        summary=f"Deliver the dead letters of a namespace again, or those of one key, about {MOST_AT_ONCE} a call.",
        act="delivery.retry-many", who=OPERATE_NAMESPACE, body=BusRetryFilter, body_required=False,
        answers={HTTPStatus.OK: BusRetriedView},
    )  # fmt: skip
    async def retry_bus_dead_letters(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        content = await request.body()
        wanted = decode_body(content, _filter_decoder) if content.strip() else BusRetryFilter()
        key = "" if wanted.key is UNSET else wanted.key
        retried = await self._flow.retry_all(namespace_of(request), key=key)
        return wire.answer(BusRetriedView(retried.retried, retried.more))

    @_route(
        "POST", BUS_LETTER + "/discard", summary="Give a dead letter up.",
        act="delivery.discard", who=OPERATE_NAMESPACE, answers={HTTPStatus.NO_CONTENT: None}, problems=(_NOT_FOUND,),
    )  # fmt: skip
    async def discard_bus_dead_letter(
        self, request: Request[Any, Any, Any], letter_id: FromPath[str]
    ) -> Response[None]:
        await self._flow.discard(namespace_of(request), letter_id)
        return wire.empty()
