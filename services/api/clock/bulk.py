"""`POST /schedules/bulk`: up to 10,000 schedules in one request, with an answer for each. One bad item does not spoil
the others.

The body is an array, or NDJSON: an item a line, empty lines left out. Answers come in kind and in order. A client may
send the whole again: schedules that exist with the same content stay as they are.
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from msgspec import Struct

from carillon.wire.clock import BulkResult
from services.api.accounts.apps import CALLERS_NAMESPACE, own_namespace
from services.api.clock import definitions
from services.api.clock.definitions import LIMITS, Body
from services.api.clock.limits import ScheduleLimits
from services.api.clock.schedules import KEY, SCHEDULES, sameness
from services.api.http.bodies import NDJSON, check_size, decode_body, item_error, read_items, status_of, without_frames
from services.api.http.identity import caller_of
from services.api.http.paging import idempotency_of
from services.api.http.rights import KNOWN
from services.api.http.routes import JSON, Resource, Route
from shared.accounts.rules.callers import Caller
from shared.clock.rules.callbacks import Targets
from shared.clock.schedules import Accepted, ScheduleFlow, Wanted
from shared.console.store_idempotency import FirstUse
from shared.core.errors import Invalid, Refused
from shared.core.ids import Idempotency
from shared.runtime.loops import Turns
from shared.store import Store

ITEMS = 10_000
BODY_BYTES = 32 * 2**20
CHUNK_ITEMS = 500
CHUNK_INSTANTS = 20_000
CHUNK_BYTES = 4 * 2**20  # what is encoded for the database in one go holds the loop


class _KeyedItem(Struct, frozen=True):
    """Only the key of an item: a body has room for millions of other fields."""

    key: str | None = None


_key_decoder = msgspec.json.Decoder(_KeyedItem)


class BulkResource(Resource):
    def __init__(self, store: Store, flow: ScheduleFlow, targets: Targets, limits: ScheduleLimits) -> None:
        self._store = store
        self._limits = limits
        self._flow = flow
        self._targets = targets

    @Route(
        "POST", SCHEDULES + "/bulk",
        summary="Make up to 10,000 schedules, given as an array or a line each (application/x-ndjson).",
        act="schedule.create-many", who=KNOWN,
        body=list[Body], body_media=(JSON, NDJSON), max_body_bytes=BODY_BYTES,
        limits=LIMITS, answers={HTTPStatus.OK: list[BulkResult]}, parameters=(KEY, CALLERS_NAMESPACE),
    )  # fmt: skip
    async def create_schedules(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        own_namespace(request)
        maker = caller_of(request)
        content = await request.body()
        await asyncio.sleep(0)  # putting 32 MB together was a turn of its own
        body = read_items(request, content, most=ITEMS)
        items = body.items
        used = idempotency_of(request, sameness(request, content))
        if used is None:
            answers = await self._answer_all(items, maker)
        else:
            answers = await self._answer_once(items, maker, used)
        return body.answer(answers)

    async def _answer_once(self, items: Sequence[bytes], maker: Caller, used: Idempotency) -> list[BulkResult]:
        """Answer as `_answer_all` does, but do not make items again that an earlier request with the key has made."""
        first = await self._store.idempotency.claim(used)
        answers = await self._answer_all(items, maker, _bits(first))
        await self._add_made(used, first, sum(1 << answer.index for answer in answers if answer.error is None))
        return answers

    async def _add_made(self, used: Idempotency, known: FirstUse | None, made: int) -> None:
        """Add these bits to those that equal requests have stored meanwhile."""
        while known is not None and made & ~_bits(known):
            kept = f"{_bits(known) | made:x}"
            if await self._store.idempotency.replace_made(used.key, kept, before=known.made):
                return
            known = await self._store.idempotency.recall(used)

    async def _answer_all(self, items: Sequence[bytes], maker: Caller, before: int = 0) -> list[BulkResult]:
        answers: list[BulkResult] = []
        turns = Turns()
        while (start := len(answers)) < len(items):
            read = await self._read_chunk(items[start : start + CHUNK_ITEMS], maker, turns)
            for offset, answer in enumerate(await self._chunk(read, maker, before >> start)):
                answers.append(_view(start + offset, read[offset], items[start + offset], answer))
                await turns.give()
        return answers

    async def _read_chunk(self, items: Sequence[bytes], maker: Caller, turns: Turns) -> list[Wanted | Invalid]:
        chunk: list[Wanted | Invalid] = []
        instants = size = 0
        for item in items:
            wanted = self._read(item, maker)
            await turns.give()
            chunk.append(wanted)
            instants += len(wanted.definition.instants) if isinstance(wanted, Wanted) else 0
            size += len(item)
            if instants >= CHUNK_INSTANTS or size >= CHUNK_BYTES:
                break
        return chunk

    def _read(self, item: bytes, maker: Caller) -> Wanted | Invalid:
        try:
            check_size(item)
            key, definition = definitions.read(item, self._targets)
        except Invalid as error:
            return without_frames(error)
        return Wanted(maker.namespace, key, definition, maker.token_id)

    async def _chunk(
        self, chunk: Sequence[Wanted | Invalid], maker: Caller, before: int
    ) -> list[Accepted | Refused | None]:
        """An answer for each item; `None` if it was made before."""
        wanted = {n: each for n, each in enumerate(chunk) if isinstance(each, Wanted) and not before >> n & 1}
        refused = await self._limits.judge(list(wanted.values()), maker) if wanted else {}
        allowed = {n: each for n, each in wanted.items() if each.id not in refused}
        accepted = await self._flow.accept(list(allowed.values())) if allowed else ()
        answers: dict[int, Accepted | Refused] = dict(zip(allowed, accepted, strict=True))
        answers |= {n: refused[each.id] for n, each in wanted.items() if each.id in refused}
        return [each if isinstance(each, Invalid) else answers.get(n) for n, each in enumerate(chunk)]


def _bits(first: FirstUse) -> int:
    """The items that were made with a key, one bit each."""
    return int(first.made or "0", 16)


def _view(index: int, read: Wanted | Invalid, item: bytes, answer: Accepted | Refused | None) -> BulkResult:
    key = read.key if isinstance(read, Wanted) else _key_of(item)
    if isinstance(answer, Refused):
        return BulkResult(index=index, key=key, status=status_of(answer), error=item_error(answer))
    created = answer is not None and answer.created
    return BulkResult(index=index, key=key, status=HTTPStatus.CREATED if created else HTTPStatus.OK)


def _key_of(item: bytes) -> str | None:
    """The key of an item with a mistake, so that its sender can identify it."""
    try:
        key = decode_body(item, _key_decoder).key
    except Invalid:
        return None
    return key[:255] if key is not None else None
