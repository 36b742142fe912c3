"""Waiting events of a queue: cut into deliveries, compacted, and bounded.

Events are taken from the front of the queue, in the order of its chunks, so each is in one delivery, and those of
one partition keep their order. A delivery is full, unless the first remaining event has waited for long enough:
then all remaining events go.

Each flush adds at least a chunk to a queue, so a receiver that is away for days has a chunk for each flush.
Compaction makes few full ones of them, and keeps the events, their order and their places.

A backlog has limits of age, number and size. Beyond them the oldest whole chunks are lost, and reported as lost:
nothing is dropped in silence.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from shared.bus.rules.deliveries import DeathReason, EventDelivery, delivery_id, digest_events
from shared.bus.rules.folding import FOLD_LIMITS, MOST_APART, FoldLimits
from shared.core.instants import EPOCH

_BRACKETS, _COMMA = 2, 1


class ChunkHead(Struct, frozen=True, kw_only=True):
    """A chunk without its events: `n` events of `bytes` are uncut, the first of which arrived at `first_at`."""

    id: str
    queue: str
    n: int
    bytes: int
    first_at: datetime

    @property
    def source(self) -> str:
        """The number of the replay that brought its events; empty for newly published events."""
        return (self.id.split("/", 3)[2:3] or [""])[0].partition("~")[2]


class QueuedChunk(Struct, frozen=True, kw_only=True):
    """A stored chunk: events as their receiver gets them, their arrivals in epoch milliseconds, and their places in the
    log. The first `skip` are cut."""

    id: str
    queue: str
    events: tuple[bytes, ...]
    arrivals: tuple[int, ...]
    offsets: tuple[tuple[str, int], ...]
    skip: int = 0


class CutRules(Struct, frozen=True, kw_only=True):
    """The limits of a cut: events and bytes of a delivery, the waiting time of the first event, and the number of
    deliveries now."""

    max_events: int
    max_bytes: int
    timeout: timedelta
    deliveries: int


class ShortenedChunk(Struct, frozen=True):
    id: str
    skip: int
    n: int
    bytes: int
    first_at: datetime


class QueueCut(Struct, frozen=True, kw_only=True):
    """The result of a cut: the deliveries, the used chunks, and the partly cut one. `left` counts the remaining events
    of the chunks; they are due at `next_due`, `None` if there are none."""

    deliveries: tuple[EventDelivery, ...] = ()
    used: tuple[str, ...] = ()
    shortened: ShortenedChunk | None = None
    left: int = 0
    next_due: datetime | None = None

    @property
    def events(self) -> int:
        return sum(delivery.count for delivery in self.deliveries)

    @property
    def size(self) -> int:
        return sum(delivery.size for delivery in self.deliveries)


class _Item(Struct, frozen=True, gc=False):
    chunk: int
    index: int
    event: bytes
    arrival: int


def choose_chunks(heads: Sequence[ChunkHead], rules: CutRules, *, most_bytes: int) -> list[ChunkHead]:
    """The first chunks that a cut can use: until they fill all deliveries, or have `most_bytes` or the bytes of one
    delivery, if that is more. The last one may exceed the limit. This limits one queue; the budget of the process
    limits all queues together."""
    chosen, events, size = list[ChunkHead](), 0, 0
    for head in heads:
        if events >= rules.deliveries * rules.max_events or size >= max(most_bytes, rules.max_bytes):
            break
        chosen.append(head)
        events, size = events + head.n, size + head.bytes
    return chosen


def fills_one(heads: Sequence[ChunkHead], rules: CutRules) -> bool:
    events, size = sum(head.n for head in heads), sum(head.bytes for head in heads)
    return bool(heads) and (
        events >= rules.max_events or size + events * _COMMA + _BRACKETS - _COMMA >= rules.max_bytes
    )


def is_due(heads: Sequence[ChunkHead], rules: CutRules, now: datetime) -> bool:
    """Whether the first chunks of a queue have a delivery to cut now."""
    return fills_one(heads, rules) or any(head.first_at + rules.timeout <= now for head in heads)


def cut(
    queue: str, chunks: Sequence[QueuedChunk], rules: CutRules, *, sequence: int, now: datetime, more: bool = False
) -> QueueCut:
    """Cut the due events of the first chunks of a queue, whose last delivery has this `sequence`. With `more` chunks
    behind these, the last delivery may become larger, and waits for the next cut unless it is the only one."""
    items = list(_items(chunks))
    deliveries, at = list[EventDelivery](), 0
    while at < len(items) and len(deliveries) < rules.deliveries:
        batch, is_full = _fill(items, at, rules)
        if not is_full and not (not deliveries if more else _first_at(batch) + rules.timeout <= now):
            break
        deliveries.append(_make(queue, sequence + len(deliveries) + 1, batch, chunks, now))
        at += len(batch)
    return _describe(chunks, items, at, tuple(deliveries), rules, now)


def _items(chunks: Sequence[QueuedChunk]) -> Iterator[_Item]:
    for number, chunk in enumerate(chunks):
        for index in range(chunk.skip, len(chunk.events)):
            yield _Item(number, index, chunk.events[index], chunk.arrivals[index])


def _fill(items: Sequence[_Item], at: int, rules: CutRules) -> tuple[list[_Item], bool]:
    """The next delivery's events, and whether it is full."""
    size, end = _BRACKETS - _COMMA, at
    while end < len(items) and end - at < rules.max_events:
        size += len(items[end].event) + _COMMA
        if size > rules.max_bytes and end > at:
            return list(items[at:end]), True
        end += 1
    return list(items[at:end]), end - at == rules.max_events or size >= rules.max_bytes


def _make(
    queue: str, sequence: int, batch: Sequence[_Item], chunks: Sequence[QueuedChunk], now: datetime
) -> EventDelivery:
    events = tuple(item.event for item in batch)
    return EventDelivery(
        id=delivery_id(queue, sequence),
        queue=queue,
        sequence=sequence,
        events=events,
        offsets=tuple(chunks[item.chunk].offsets[item.index] for item in batch),
        count=len(batch),
        size=sum(map(len, events)),
        digest=digest_events(events),
        first_at=_first_at(batch),
        cut_at=now,
        retry_at=now,
    )


def _describe(
    chunks: Sequence[QueuedChunk],
    items: Sequence[_Item],
    at: int,
    deliveries: tuple[EventDelivery, ...],
    rules: CutRules,
    now: datetime,
) -> QueueCut:
    rest = items[at:]
    if not rest:
        return QueueCut(deliveries=deliveries, used=tuple(chunk.id for chunk in chunks))
    first = rest[0]
    used = tuple(chunk.id for chunk in chunks[: first.chunk])
    shortened = None
    if first.index > chunks[first.chunk].skip:
        left = [item for item in rest if item.chunk == first.chunk]
        size = sum(len(item.event) for item in left)
        shortened = ShortenedChunk(chunks[first.chunk].id, first.index, len(left), size, _first_at(left))
    waiting, is_full = _fill(rest, 0, rules)
    next_due = now if is_full else _first_at(waiting) + rules.timeout
    return QueueCut(deliveries=deliveries, used=used, shortened=shortened, left=len(rest), next_due=next_due)


def _first_at(batch: Sequence[_Item]) -> datetime:
    return EPOCH + timedelta(milliseconds=min(item.arrival for item in batch))


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


_PATIENCE = timedelta(minutes=1)


class BacklogLimits(Struct, frozen=True):
    events: int
    bytes: int


class Backlog(Struct, frozen=True):
    """The events that wait in a queue: their number, the arrival of the first, and their bytes."""

    events: int
    oldest: datetime
    bytes: int = 0

    def is_beyond(self, limits: BacklogLimits, expired: datetime) -> bool:
        """Whether some of it is lost: it is too much, or arrived before `expired`."""
        return self.events > limits.events or self.bytes > limits.bytes or self.oldest + MOST_APART < expired

    def is_overdue(self, timeout: timedelta, now: datetime) -> bool:
        """Whether its first events should be in a delivery: they were due long ago."""
        return self.oldest + timeout + _PATIENCE < now


class Surplus(Struct, frozen=True):
    """The first chunks of a queue, which are lost, and the reason."""

    heads: tuple[ChunkHead, ...]
    reason: DeathReason

    @property
    def events(self) -> int:
        return sum(head.n for head in self.heads)


def choose_surplus(
    heads: Sequence[ChunkHead], backlog: Backlog, limits: BacklogLimits, *, expired: datetime
) -> Surplus | None:
    """The first chunks of a queue that are lost, for one reason and from one source: those that arrived entirely before
    `expired`; otherwise as many as bring the whole backlog within its limits. `None` if there are none."""
    heads = list(takewhile(lambda head: head.source == heads[0].source, heads))
    old = [head for head in heads if head.first_at + MOST_APART < expired]
    if old:
        return Surplus(tuple(old), DeathReason.AGE)
    events, size, chosen = backlog.events, backlog.bytes, list[ChunkHead]()
    for head in heads:
        if events <= limits.events and size <= limits.bytes:
            break
        chosen.append(head)
        events, size = events - head.n, size - head.bytes
    return Surplus(tuple(chosen), DeathReason.BACKLOG) if chosen else None
