"""Compaction: many small chunks of a queue become few full ones.

Each flush adds at least a chunk to a queue, so a receiver that is away for days has a chunk for each flush. Compaction
keeps the events, their order and their places.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from msgspec.structs import replace

from shared.domain.bus.cutting import ChunkHead, QueuedChunk
from shared.domain.bus.folding import FOLD_LIMITS, MOST_APART, FoldLimits

MANY_CHUNKS = 200
"""A queue with fewer chunks stays as it is."""

_WORTH = 4  # the chunks must exceed the full ones by this factor


def is_worth_it(chunks: int, events: int, size: int, limits: FoldLimits = FOLD_LIMITS) -> bool:
    """Whether compaction would leave far fewer chunks in a queue."""
    full = max(-(-events // limits.chunk_events), -(-size // limits.chunk_bytes))
    return chunks >= MANY_CHUNKS and full * _WORTH <= chunks


def choose_small(heads: Sequence[ChunkHead], most_bytes: int, limits: FoldLimits = FOLD_LIMITS) -> list[ChunkHead]:
    """The first neighbouring chunks that are not full and come from one source, up to `most_bytes`."""
    chosen, size = list[ChunkHead](), 0
    for head in heads:
        is_small = 2 * head.n <= limits.chunk_events and 2 * head.bytes <= limits.chunk_bytes
        if chosen and (not is_small or head.source != chosen[0].source):
            if len(chosen) > 1:
                break
            chosen, size = [], 0
        if not is_small:
            continue
        if size + head.bytes > most_bytes:
            break
        chosen.append(head)
        size += head.bytes
    return chosen if len(chosen) > 1 else []


def merge_chunks(chunks: Iterable[QueuedChunk], limits: FoldLimits = FOLD_LIMITS) -> list[QueuedChunk]:
    """The same events in the same order, in as few chunks as the limits allow: each has the id of its first chunk."""
    merged: list[QueuedChunk] = []
    for chunk in map(_without_what_is_cut, chunks):
        if merged and _fit(merged[-1], chunk, limits):
            merged[-1] = replace(
                merged[-1],
                events=merged[-1].events + chunk.events,
                arrivals=merged[-1].arrivals + chunk.arrivals,
                offsets=merged[-1].offsets + chunk.offsets,
            )
        else:
            merged.append(chunk)
    return merged


def _without_what_is_cut(chunk: QueuedChunk) -> QueuedChunk:
    first = chunk.skip
    return replace(
        chunk, events=chunk.events[first:], arrivals=chunk.arrivals[first:], offsets=chunk.offsets[first:], skip=0
    )


def _fit(first: QueuedChunk, second: QueuedChunk, limits: FoldLimits) -> bool:
    arrivals = (*first.arrivals, *second.arrivals)
    size = sum(map(len, (*first.events, *second.events)))
    is_near = max(arrivals) - min(arrivals) <= MOST_APART // timedelta(milliseconds=1)
    return is_near and len(arrivals) <= limits.chunk_events and size <= limits.chunk_bytes
