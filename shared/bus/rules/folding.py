"""Folding: entries of the log become the chunks that one flush adds to each queue.

Events of different partitions are merged by arrival, but keep the order of their partition, which contains all events
of an entity. An event goes into all queues that want it, or waits for the next flush with all later events. An event
too large for any flush is divided: it goes into as many queues as one flush has room for, in the order of their names,
and its partition's position stays before it, with the name of the last queue. So a flush keeps its limits, or has one
event for one queue.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from shared.bus.rules.events import EVERYBODY, BusEvent, is_own, published_form, read_event
from shared.bus.rules.filters import EventFilter, cost_of, matches
from shared.bus.rules.subscriptions import EventForm, EventSubscription
from shared.bus.rules.wake_ups import Wake
from shared.core.instants import EPOCH, ms


class FoldLimits(Struct, frozen=True, kw_only=True):
    """The limits of a flush: pairs of an event and a queue, their bytes, and chunks; and those of a chunk. The `cost`
    of filters ends a fold too, because a fold cannot be interrupted: a unit is some microseconds."""

    pairs: int = 20_000
    bytes: int = 4 * 2**20
    chunks: int = 1_000
    chunk_events: int = 500
    chunk_bytes: int = 256 * 2**10
    cost: int = 100_000


FOLD_LIMITS = FoldLimits()

MOST_APART = timedelta(hours=1)
"""The maximum between the arrivals in one chunk, because whole chunks expire."""

_APART_MS = MOST_APART // timedelta(milliseconds=1)


class LogEntry(Struct, frozen=True, gc=False):
    """A record of the log. `event` is `None` if it is unreadable. `next` is the position after it. `merged_by` is its
    arrival in epoch milliseconds, or a later one of an earlier record in its partition."""

    partition: str
    offset: int
    next: int
    record: bytes
    event: BusEvent | None
    merged_by: int


class DividedEvent(Struct, frozen=True):
    """An event, by its offset, that the queues up to `upto` have already."""

    offset: int
    upto: str


NONE_BEGUN: Mapping[str, DividedEvent] = MappingProxyType({})


class Collector(Struct, frozen=True, gc=False):
    """A subscription in the fold, for one or several topics. `filter` is `None` if it wants all events. `former` has
    its earlier choices, each for offsets before those of its partitions. `is_left`: it has left the topic. `cost` is
    that of applying it."""

    queue: str
    namespace: str
    is_native: bool
    filter: EventFilter | None
    timeout: timedelta
    cost: int = 1
    former: tuple[tuple[Mapping[str, int], EventFilter | None], ...] = ()
    is_left: bool = False

    def wants(self, event: BusEvent, partition: str, offset: int) -> bool:
        for ends, wanted in self.former:
            if offset < ends.get(partition, 0):
                return wanted is not None and matches(wanted, event)
        return not self.is_left and (self.filter is None or matches(self.filter, event))


class Collectors:
    """The collectors of each topic's events, at one version of the registry."""

    def __init__(self) -> None:
        self.version = -1
        self._topics: dict[str, tuple[str, ...]] = {}
        self._by_topic: dict[str, dict[str, Collector]] = {}
        self._costs: Counter[str] = Counter()

    def learn(self, version: int, changed: Iterable[EventSubscription], *, is_whole: bool) -> None:
        """Apply the changes up to this version; `is_whole`: replace everything."""
        if is_whole:
            self._topics, self._by_topic, self._costs = {}, {}, Counter()
        for subscription in changed:
            self._forget(subscription.id)
            if subscription.collects:
                self._add(subscription)
        self.version = version

    def find(self, event: BusEvent, partition: str, offset: int) -> list[Collector]:
        on_topic = self._by_topic.get(event.topic)
        if on_topic is None:
            return []
        wanted_by = [
            found
            for found in on_topic.values()
            if (found.filter is None and not found.former) or found.wants(event, partition, offset)
        ]
        if is_own(event.topic):
            return [found for found in wanted_by if event.audience in (found.namespace, EVERYBODY)]
        return wanted_by

    def cost(self, topic: str) -> int:
        return self._costs[topic]

    def _add(self, subscription: EventSubscription) -> None:
        wanted = None if subscription.filter.is_empty else subscription.filter
        is_native = subscription.form is EventForm.NATIVE
        cost = 1 if wanted is None else cost_of(wanted)
        collector = Collector(subscription.queue, subscription.namespace, is_native, wanted, subscription.timeout, cost)
        own, former = set(subscription.topics), subscription.former
        topics = (*subscription.topics, *{topic for each in former for topic in each.topics if topic not in own})
        self._topics[subscription.id] = topics
        for topic in topics:
            before = tuple((dict(each.ends.offsets), each.filter) for each in former if topic in each.topics)
            found = replace(collector, former=before, is_left=topic not in own) if before else collector
            self._by_topic.setdefault(topic, {})[subscription.id] = found
            self._costs[topic] += cost

    def _forget(self, id: str) -> None:
        for topic in self._topics.pop(id, ()):
            on_topic = self._by_topic[topic]
            self._costs[topic] -= on_topic.pop(id).cost
            if not on_topic:
                del self._by_topic[topic], self._costs[topic]


class EventChunk:
    """Events for a queue in the receiver's form. `arrivals` are in epoch milliseconds, `offsets` are places in the log,
    and `size` is in bytes."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.events: list[bytes] = []
        self.arrivals: list[int] = []
        self.offsets: list[tuple[str, int]] = []
        self.size = 0

    def add(self, encoded: bytes, arrival: int, entry: LogEntry) -> None:
        self.events.append(encoded)
        self.arrivals.append(arrival)
        self.offsets.append((entry.partition, entry.offset))
        self.size += len(encoded)

    def has_room(self, size: int, arrival: int, limits: FoldLimits) -> bool:
        is_near = not self.arrivals or abs(arrival - self.arrivals[0]) <= _APART_MS
        return is_near and len(self.events) < limits.chunk_events and self.size + size <= limits.chunk_bytes


class BusFold:
    """The content of one flush. `taken` counts its entries, `reached` has the positions after them, `counts` the events
    of each topic and their bytes, and `unreadable` the unreadable records. `now` is the time of the fold: no event
    arrives later. `begun` are events of which earlier flushes brought a part, by partition, and `divided` those of
    which this one does."""

    def __init__(
        self, now: datetime, limits: FoldLimits, begun: Mapping[str, DividedEvent], *, arrive_now: bool
    ) -> None:
        self.taken = 0
        self.reached: dict[str, int] = {}
        self.divided: dict[str, DividedEvent] = {}
        self.counts: dict[str, tuple[int, int]] = {}
        self.chunks: list[EventChunk] = []
        self.cost = self.pairs = 0
        self.bytes = 0
        self.unreadable = 0
        self._now = now
        self._latest = ms(now)
        self._earliest = self._latest if arrive_now else 0
        self._limits = limits
        self._begun = begun
        self._open: dict[str, EventChunk] = {}
        self._told: dict[str, tuple[Collector, int, int]] = {}

    def add(self, entry: LogEntry, collectors: Collectors) -> bool:
        """Add the next entry; `False` if it has to wait for the next flush."""
        event = entry.event
        if event is None:
            self.unreadable += 1
        else:
            self.cost += collectors.cost(event.topic)
            wanted_by = self._find_left(entry, collectors.find(event, entry.partition, entry.offset))
            if wanted_by and not self._bring(entry, event, wanted_by):
                return False
            count, size = self.counts.get(event.topic, (0, 0))
            self.counts[event.topic] = (count + 1, size + len(entry.record))
        self.taken += 1
        self.reached[entry.partition] = entry.next
        return True

    @property
    def wakes(self) -> list[Wake]:
        """The wake of each queue: due at once without a time-out, otherwise when the first event has waited for it."""
        return [
            Wake(
                queue, EPOCH + timedelta(milliseconds=first) + collector.timeout if collector.timeout else self._now, n
            )
            for queue, (collector, first, n) in self._told.items()
        ]

    def _find_left(self, entry: LogEntry, wanted_by: list[Collector]) -> list[Collector]:
        begun = self._begun.get(entry.partition)
        if begun is None or begun.offset != entry.offset:
            return wanted_by
        return [collector for collector in wanted_by if collector.queue > begun.upto]

    def _bring(self, entry: LogEntry, event: BusEvent, wanted_by: Sequence[Collector]) -> bool:
        forms = {collector.is_native for collector in wanted_by}
        encoded = {is_native: entry.record if is_native else published_form(event) for is_native in forms}
        brought = sum(len(encoded[collector.is_native]) for collector in wanted_by)
        if self._has_room(wanted_by, encoded, brought, self._arrival_of(event)):
            self._add_to_all(entry, event, wanted_by, encoded)
            return True
        if not self.pairs:
            self._divide(entry, event, wanted_by, encoded)
        return False

    def _divide(
        self, entry: LogEntry, event: BusEvent, wanted_by: Sequence[Collector], encoded: Mapping[bool, bytes]
    ) -> None:
        limits, longest = self._limits, max(map(len, encoded.values()))
        most = max(min(limits.pairs, limits.chunks, limits.bytes // longest), 1)
        first = sorted(wanted_by, key=attrgetter("queue"))[:most]
        self._add_to_all(entry, event, first, encoded)
        self.reached[entry.partition] = entry.offset
        self.divided[entry.partition] = DividedEvent(entry.offset, first[-1].queue)

    def _add_to_all(
        self, entry: LogEntry, event: BusEvent, wanted_by: Sequence[Collector], encoded: Mapping[bool, bytes]
    ) -> None:
        arrival = self._arrival_of(event)
        for collector in wanted_by:
            own = encoded[collector.is_native]
            self._chunk_for(collector.queue, len(own), arrival).add(own, arrival, entry)
            _, first, n = self._told.get(collector.queue, (collector, arrival, 0))
            self._told[collector.queue] = (collector, min(first, arrival), n + 1)
            self.bytes += len(own)
        self.pairs += len(wanted_by)

    def _arrival_of(self, event: BusEvent) -> int:
        return min(max(event.at, self._earliest), self._latest)

    def _has_room(
        self, wanted_by: Sequence[Collector], encoded: Mapping[bool, bytes], brought: int, arrival: int
    ) -> bool:
        limits = self._limits
        if self.pairs + len(wanted_by) > limits.pairs or self.bytes + brought > limits.bytes:
            return False
        if len(self.chunks) + len(wanted_by) <= limits.chunks:
            return True
        new = sum(not self._fits(each.queue, len(encoded[each.is_native]), arrival) for each in wanted_by)
        return len(self.chunks) + new <= limits.chunks

    def _fits(self, queue: str, size: int, arrival: int) -> bool:
        chunk = self._open.get(queue)
        return chunk is not None and chunk.has_room(size, arrival, self._limits)

    def _chunk_for(self, queue: str, size: int, arrival: int) -> EventChunk:
        chunk = self._open.get(queue)
        if chunk is None or not chunk.has_room(size, arrival, self._limits):
            chunk = self._open[queue] = EventChunk(queue)
            self.chunks.append(chunk)
        return chunk


def read_entries(partition: str, values: Sequence[bytes | None], offsets: Sequence[int], upto: int) -> list[LogEntry]:
    """The entries of consecutive records of one partition; `upto` is the position after them."""
    entries, merged_by = [], 0
    for value, offset, following in zip(values, offsets, [*offsets, upto][1:], strict=True):
        event = None if value is None else read_event(value)
        if event is not None:
            merged_by = max(merged_by, event.at)
        entries.append(LogEntry(partition, offset, following, value or b"", event, merged_by))
    return entries


def merge_entries(partitions: Iterable[Sequence[LogEntry]]) -> list[LogEntry]:
    """The entries of several partitions by arrival; those of each partition in its own order."""
    return list(heapq.merge(*partitions, key=attrgetter("merged_by")))


def fold(
    entries: Iterable[LogEntry],
    collectors: Collectors,
    *,
    now: datetime,
    limits: FoldLimits = FOLD_LIMITS,
    begun: Mapping[str, DividedEvent] = NONE_BEGUN,
    arrive_now: bool = False,
) -> BusFold:
    """Fold the first entries that fit into a flush: at least one, or a part of it. `arrive_now`: the events were
    published long before, and count as arrived at `now`."""
    folded = BusFold(now, limits, begun, arrive_now=arrive_now)
    for entry in entries:
        if not folded.add(entry, collectors) or folded.cost >= limits.cost:
            break
    return folded
