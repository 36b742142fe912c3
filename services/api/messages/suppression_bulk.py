"""`POST /apps/{appId}/suppressions/bulk`: up to 10,000 suppressions in one request, with an answer for each. One bad
item does not spoil the others, and sending the whole again is safe."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.accounts.apps import app_of
from services.api.http.bulk_items import NDJSON, ItemError, read_items, status_of, without_frames
from services.api.http.rights import OPERATE_APP
from services.api.http.routes import JSON, Resource, Route
from services.api.messages.suppression_body import SuppressionBody, read_suppression
from services.api.messages.suppressions import SUPPRESSIONS
from shared.domain.accounts.apps import check_not_deleting
from shared.domain.errors import Invalid
from shared.domain.instants import from_ms, ms
from shared.domain.messages.suppressions import Suppression
from shared.runtime.clock import Clock
from shared.runtime.turns import Turns
from shared.store import Store

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
    """The route for many suppressions at once."""

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
        return SuppressionItemView(index=index, id=None, status=status_of(read), error=ItemError.of(read))
    return SuppressionItemView(index=index, id=read.id, status=HTTPStatus.OK if there else HTTPStatus.CREATED)
