"""Cutting: waiting events of a queue become deliveries.

Events are taken from the front of the queue, in the order of its chunks, so each is in one delivery, and those of one
partition keep their order. A delivery is full, unless the first remaining event has waited for long enough: then all
remaining events go.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from shared.domain.bus.deliveries import EventDelivery, delivery_id, digest_events
from shared.domain.instants import EPOCH

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
