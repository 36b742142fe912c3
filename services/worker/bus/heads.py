"""Reading the first chunks of many queues, so that a long backlog delays no other queue.

Queues with few events are read together. A queue with more is read alone, a few of these at a time. The known counts
may be old: if a shared read reaches its limit, the remaining queues are read alone too.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from msgspec import Struct

from shared.domain.bus.cutting import ChunkHead
from shared.store.bus.cuts import BusCuts

HEADS = 2_000
"""The chunks that one read takes for several queues."""

FIRST_HEADS = 64
"""The chunks of one queue that are read first. A queue with more waiting events is read alone."""

READS_AT_ONCE = 8

Heads = dict[str, list[ChunkHead]]


class HeadsAsked(Struct, frozen=True):
    """A queue whose chunks are read, at most `most`, with the known number of waiting events."""

    queue: str
    most: int
    waiting: int


async def read_heads(cuts: BusCuts, asked: Sequence[HeadsAsked]) -> list[list[ChunkHead]]:
    """The first chunks of each queue, in order."""
    apart = [one for one in asked if max(one.most, one.waiting) > FIRST_HEADS]
    groups = _divide([one for one in asked if max(one.most, one.waiting) <= FIRST_HEADS])
    limit = asyncio.Semaphore(READS_AT_ONCE)
    reads = [_read_group(cuts, group, limit) for group in groups]
    found: Heads = {}
    for heads in await asyncio.gather(*reads, _read_apart(cuts, apart, limit)):
        found |= heads
    return [found.get(one.queue, [])[: one.most] for one in asked]


async def _read_group(cuts: BusCuts, group: Sequence[HeadsAsked], limit: asyncio.Semaphore) -> Heads:
    async with limit:
        found = await cuts.read_heads([one.queue for one in group], limit=HEADS)
    heads = {queue: list(some) for queue, some in groupby(found, attrgetter("queue"))}
    if len(found) < HEADS:
        return heads
    return heads | await _read_apart(cuts, [one for one in group if one.queue >= found[-1].queue], limit)


async def _read_apart(cuts: BusCuts, asked: Sequence[HeadsAsked], limit: asyncio.Semaphore) -> Heads:
    async def read(one: HeadsAsked) -> list[ChunkHead]:
        async with limit:
            return await cuts.read_heads([one.queue], limit=one.most)

    found = await asyncio.gather(*map(read, asked))
    return {one.queue: heads for one, heads in zip(asked, found, strict=True)}


def _divide(asked: Sequence[HeadsAsked]) -> Iterator[list[HeadsAsked]]:
    """Groups of queues that are expected to have fewer than `HEADS` chunks together."""
    group, expected = list[HeadsAsked](), 0
    for one in asked:
        expected += one.waiting + 1
        if expected >= HEADS:
            yield group
            group, expected = [], one.waiting + 1
        group.append(one)
    if group:
        yield group
