"""Many schedules in chunks, which are small enough for the server and for a time-out: an item a line."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from http import HTTPStatus
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from carillon.definitions import BulkResult, ItemError, Schedule
from carillon.iterables import each
from carillon.transport import NDJSON, Transport

ITEMS = 5_000  # the server takes twice as many
INSTANTS = 50_000  # what it stores in some seconds
BODY_BYTES = 8 * 2**20  # a quarter of what it takes
LARGEST_ITEM_BYTES = 2 * 2**20
"""A payload has at most 256 KiB and a list 10,000 instants: nothing that the server would accept is as large."""


class _Item(Struct, frozen=True):
    """A schedule that can be sent."""

    content: bytes
    instants: int


async def results(
    transport: Transport,
    schedules: Iterable[Schedule] | AsyncIterable[Schedule],
    idempotency_key: str,
    reason: str,
) -> AsyncGenerator[BulkResult]:
    """As `Schedules.bulk`. With a key of the caller's each chunk has one of its own, made of it."""
    index, numbers = 0, count()
    async for chunk in chunks(each(schedules, transport.runtime)):
        if isinstance(chunk, BulkResult):
            yield replace(chunk, index=index)
            index += 1
            continue
        key = f"{idempotency_key}/{next(numbers)}" if idempotency_key else ""
        for result in await _send_chunk(transport, chunk, key, reason):
            yield replace(result, index=index + result.index)
        index += len(chunk)


async def chunks(schedules: AsyncIterable[Schedule]) -> AsyncGenerator[list[bytes] | BulkResult]:
    """Lines to be sent together, and in between the results of those that cannot be sent at all."""
    chunk: list[bytes] = []
    size = instants = 0
    async for schedule in schedules:
        item = _item(schedule)
        full = isinstance(item, _Item) and (
            len(chunk) == ITEMS or size + len(item.content) >= BODY_BYTES or instants + item.instants > INSTANTS
        )
        if chunk and (full or isinstance(item, BulkResult)):
            yield chunk
            chunk, size, instants = [], 0, 0
        if isinstance(item, BulkResult):
            yield item
            continue
        chunk.append(item.content)
        size += len(item.content) + 1
        instants += item.instants
    if chunk:
        yield chunk


def _item(schedule: Schedule) -> _Item | BulkResult:
    try:
        content = schedule.encoded()
    except (TypeError, ValueError) as error:
        return _refused(schedule, HTTPStatus.UNPROCESSABLE_ENTITY, f"it cannot be written as JSON: {error}")
    if len(content) > LARGEST_ITEM_BYTES:
        return _refused(schedule, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "it is larger than any schedule may be")
    return _Item(content, len(schedule.instants))


def _refused(schedule: Schedule, status: HTTPStatus, reason: str) -> BulkResult:
    return BulkResult(index=0, key=schedule.key or None, status=status, error=ItemError(reason))


async def _send_chunk(
    transport: Transport, chunk: Sequence[bytes], idempotency_key: str, reason: str
) -> list[BulkResult]:
    answer = await transport.call(
        "POST",
        "/schedules/bulk",
        content=b"\n".join(chunk),
        content_type=NDJSON,
        idempotency_key=idempotency_key,
        reason=reason,
    )
    return answer.read_lines(BulkResult, len(chunk))
