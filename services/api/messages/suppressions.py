"""`/apps/{appId}/suppressions`: recipients who get nothing more from an app or from one of its lists; up to 10,000 of
them in one request, with an answer for each.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct

from carillon.wire import ItemError
from services.api.accounts.apps import APP, app_of
from services.api.http import bodies, paging
from services.api.http.bodies import NDJSON, Timestamp, decode_body, item_error, read_items, status_of, without_frames
from services.api.http.rights import OPERATE_APP, VIEW_APP, sees_personal_data
from services.api.http.routes import JSON, Parameter, Resource, Route
from services.api.messages.messages import address_of
from shared.accounts.rules.apps import check_not_deleting
from shared.core.errors import Forbidden, Invalid, NotFound
from shared.core.instants import format_instant, format_maybe, from_ms, ms
from shared.messages.rules.answers import Channel
from shared.messages.rules.recipients import ADDRESS_CHARACTERS, Malformed, check_region, read_address, spellings_of
from shared.messages.rules.suppressions import (
    EVERYTHING,
    LIST_CHARACTERS,
    Suppression,
    SuppressionCause,
    check_list,
    suppress_address,
)
from shared.runtime.clock import Clock
from shared.runtime.loops import Turns
from shared.store import Store

ChannelField = Annotated[Channel, Meta(description="The channel of the address. Each kind of credential has one.")]
AddressField = Annotated[
    str,
    Meta(
        description="The address of who is to get nothing more, in any spelling.",
        extra_json_schema={"minLength": 1, "maxLength": 1024, "examples": ["ana@example.com"]},
    ),
]
ListField = Annotated[
    str,
    Meta(
        description='The list that is meant, as jobs name it; `""`, the default, is everything.',
        extra_json_schema={"maxLength": LIST_CHARACTERS},
    ),
]
CauseField = Annotated[
    SuppressionCause,
    Meta(description="`unsubscribe` lets messages pass that are `transactional`; the others are bars for all."),
]
RegionField = Annotated[
    str,
    Meta(
        description="Whose phone numbers those without a country code are.",
        extra_json_schema={"examples": ["SG"]},
    ),
]


class SuppressionBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A recipient who is to get nothing more from an app by this channel."""

    channel: ChannelField
    address: AddressField
    list: ListField = EVERYTHING
    cause: CauseField = SuppressionCause.HAND
    default_region: RegionField = ""


class SuppressionView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A recipient who gets nothing more. `address` is `""` if the recipient unsubscribed by a link, which does not
    know it: `?address=` finds these too. `messageId` is that of the message that bounced or was complained about.
    `unsubscribedAt` says that the recipient has unsubscribed, whatever the cause; that stays when a bar is deleted.
    `redacted` says that the caller is a viewer, who sees no address."""

    id: str
    app_id: str
    channel: Channel
    address: str
    list: str
    cause: SuppressionCause
    message_id: str
    at: Timestamp
    unsubscribed_at: Timestamp | None
    redacted: bool = False


_decoder = msgspec.json.Decoder(SuppressionBody)


def read_suppression(content: bytes, app_id: str, *, at: datetime) -> Suppression:
    """The suppression that a body asks for. Raises `Invalid`, which shows nothing of the address."""
    body = decode_body(content, _decoder)
    check_list(body.list)
    address = read_address(body.address, body.channel, check_region(body.default_region))
    if isinstance(address, Malformed):
        raise Invalid(f"malformed address: {address.why}", field="address")
    return suppress_address(app_id, body.channel, address, cause=body.cause, at=at, list_name=body.list)


def suppression_view(suppression: Suppression, *, whole: bool = True) -> SuppressionView:
    """The suppression; without `whole` not whom it is of."""
    unsubscribed_at = suppression.unsubscribed_at
    return SuppressionView(
        id=suppression.id,
        app_id=suppression.app_id,
        channel=suppression.channel,
        address=suppression.address if whole else bodies.hide(suppression.address),
        list=suppression.list,
        cause=suppression.cause,
        message_id=suppression.message_id,
        at=format_instant(suppression.at),
        unsubscribed_at=format_maybe(unsubscribed_at),
        redacted=not whole,
    )


SUPPRESSIONS = APP + "/suppressions"
ADDRESS = Parameter(
    name="address",
    description="Only those of this address, by all channels and of all lists, in any spelling but that of a phone "
    "number without its country code. Not for viewers.",
    schema={"type": "string"},
)
_ID = {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "The id of the suppression."}


class SuppressionsResource(Resource):
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    @Route(
        "GET", SUPPRESSIONS, summary="List who gets nothing more of an app, in the order of ids.",
        who=VIEW_APP, answers={HTTPStatus.OK: list[SuppressionView]}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(ADDRESS,), paged=True,
    )  # fmt: skip
    async def list_suppressions(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        asked, app = paging.read_page(request, str), await app_of(self._store, app_id)
        whole, addresses = sees_personal_data(request), _read_addresses(request)
        if addresses and not whole:
            raise Forbidden("a viewer does not look for addresses", field="address")
        found = await self._store.suppressions.page(
            app.id, addresses=addresses, after=asked.after or "", limit=asked.limit
        )
        headers = paging.links(request, asked, found, lambda suppression: suppression.id)
        return bodies.answer([suppression_view(each, whole=whole) for each in found], headers=headers)

    @Route(
        "POST", SUPPRESSIONS,
        summary="Block a recipient of an app, or of one of its lists. A blocked recipient stays blocked; a "
                "bar takes the place of an unsubscription.",
        act="suppression.create", who=OPERATE_APP, body=SuppressionBody,
        answers={HTTPStatus.CREATED: SuppressionView, HTTPStatus.OK: SuppressionView},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def create_suppression(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        content, app = await request.body(), await app_of(self._store, app_id)
        check_not_deleting(app, app.id)
        wanted = read_suppression(content, app.id, at=from_ms(ms(self._clock.now())))
        there = await self._store.suppressions.add([wanted])
        stored = await self._store.suppressions.get(app.id, wanted.id) if there else wanted
        return bodies.answer(suppression_view(stored or wanted), HTTPStatus.OK if there else HTTPStatus.CREATED)

    @Route(
        "DELETE", SUPPRESSIONS + "/{suppression:str}",
        summary="Unblock a recipient. If it was a bar and the recipient has unsubscribed "
                "too, the unsubscription stays: the same request again deletes it.",
        act="suppression.delete", who=OPERATE_APP, answers={HTTPStatus.NO_CONTENT: None},
        problems=(HTTPStatus.NOT_FOUND,), segments={"suppression": _ID},
    )  # fmt: skip
    async def delete_suppression(self, app_id: FromPath[str], suppression: FromPath[str]) -> Response[None]:
        app = await app_of(self._store, app_id)
        if await self._store.suppressions.remove(app.id, suppression) is None:
            raise NotFound("there is no suppression with this id", field="suppression", value=suppression)
        return bodies.empty()


def _read_addresses(request: Request[Any, Any, Any]) -> list[str]:
    text = address_of(request, ADDRESS.name)
    if text and (len(text) > ADDRESS_CHARACTERS or not text.strip()):
        raise Invalid("address must be one that messages can have", field=ADDRESS.name)
    return sorted(spellings_of(text)) if text else []


ITEMS = 10_000
BODY_BYTES = 16 * 2**20
CHUNK_ITEMS = 1_000


class SuppressionItemView(Struct, frozen=True, kw_only=True):
    """The result of one item: `status` is the answer that it would have got on its own."""

    index: int
    id: str | None
    status: int
    error: ItemError | None = None


class BulkSuppressionsResource(Resource):
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    @Route(
        "POST", SUPPRESSIONS + "/bulk",
        summary="Have up to 10,000 get nothing more, given as an array or a line each (application/x-ndjson).",
        act="suppression.create-many", who=OPERATE_APP,
        body=list[SuppressionBody], body_media=(JSON, NDJSON), max_body_bytes=BODY_BYTES,
        answers={HTTPStatus.OK: list[SuppressionItemView]}, problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def create_suppressions(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        content, app = await request.body(), await app_of(self._store, app_id)
        check_not_deleting(app, app.id)
        body = read_items(request, content, most=ITEMS)
        at = from_ms(ms(self._clock.now()))
        answers: list[SuppressionItemView] = []
        for start in range(0, len(body.items), CHUNK_ITEMS):
            read = await _read_chunk(body.items[start : start + CHUNK_ITEMS], app.id, at)
            answers += await self._add_chunk(read, start)
        return body.answer(answers)

    async def _add_chunk(self, read: Sequence[Suppression | Invalid], start: int) -> list[SuppressionItemView]:
        """An answer for each; the chunk begins at `start` of the whole."""
        wanted = [each for each in read if isinstance(each, Suppression)]
        there = await self._store.suppressions.add(wanted)
        await asyncio.sleep(0)
        known = {id(wanted[position]) for position in there}
        return [_view(start + offset, each, id(each) in known) for offset, each in enumerate(read)]


async def _read_chunk(items: Sequence[bytes], app_id: str, at: datetime) -> list[Suppression | Invalid]:
    read, turns = [], Turns()
    for item in items:
        read.append(_read(item, app_id, at))
        await turns.give()
    return read


def _read(item: bytes, app_id: str, at: datetime) -> Suppression | Invalid:
    try:
        return read_suppression(item, app_id, at=at)
    except Invalid as error:
        return without_frames(error)


def _view(index: int, read: Suppression | Invalid, there: bool) -> SuppressionItemView:
    if isinstance(read, Invalid):
        return SuppressionItemView(index=index, id=None, status=status_of(read), error=item_error(read))
    return SuppressionItemView(index=index, id=read.id, status=HTTPStatus.OK if there else HTTPStatus.CREATED)
