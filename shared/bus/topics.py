"""Topics, the registry in memory (which subscriptions collect which events), and publishing.

The first publisher makes or claims a topic; subscribing to it does not claim it. A flush finds out if the registry
is out of date. An event is accepted once all replicas of the log have it.

    stamp with the arrival ──> look up the topic ──> append, wait for the acknowledgement ──> answer
                                └─ not the publisher's yet: claim it, and try again

Events that a process publishes at the same time share one lookup of topics and one append. All events of an entity
have one key, topic and URL, so they lie in one partition, in order. If a partition does not answer, only its own
events wait. The arrival is the database's time. Without an acknowledgement the log may or may not have the events:
publishing them again may publish them twice.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import compress

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace
from prometheus_client import Counter

from shared.bus.rules.events import NOTIFIER, RESERVED_PREFIX, EventDraft, Topic, is_own, stamp
from shared.bus.rules.folding import Collectors
from shared.bus.store_subscriptions import UnreadableSubscriptions
from shared.bus.store_topics import TopicSubscribed
from shared.core.documents import LogEnds
from shared.core.errors import Conflict, Forbidden, Invalid, NotFound, Unavailable
from shared.core.instants import ms
from shared.drivers.kafka import LateRecords, Stream
from shared.drivers.mongo.documents import Page
from shared.runtime.bus_settings import BusSettings
from shared.runtime.cached import LINGER_SECONDS, Coalescer
from shared.runtime.faults import fault
from shared.runtime.metrics import BUS_EVENT_BYTES, BUS_EVENTS_PUBLISHED, BUS_UNREADABLE, BoundedLabels
from shared.store import Store

_ID_BYTES = 12
ReadEnds = Callable[[], Awaitable[LogEnds]]
"""Returns the ends of the log now."""


async def read_log_ends(stream: Stream, log_topic: str, seconds: float) -> LogEnds:
    """The ends of the log now, behind all accepted events. Raises `Unavailable` also after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return LogEnds.of(secrets.token_hex(_ID_BYTES), await stream.find_ranges(log_topic))
    except TimeoutError:
        raise Unavailable(f"the log has not answered within {seconds:g} s", server="stream") from None


class Registry:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.collectors = Collectors()

    async def refresh(self) -> None:
        try:
            reading = await self._store.bus_subscriptions.read_since(self.collectors.version)
        except UnreadableSubscriptions as error:
            BUS_UNREADABLE.set(len(error.ids))
            raise
        BUS_UNREADABLE.set(0)
        self.collectors.learn(reading.version, reading.changed, is_whole=reading.whole)


_PAGE = 1_000
_TRIES = 5


class TopicWithCount(Struct, frozen=True):
    """A topic with the events and bytes that were published on it, exact up to where fan-outs have read."""

    topic: Topic
    events: int
    bytes: int


class TopicChange(Struct, frozen=True):
    """The fields to change; `UNSET` leaves a field as it is. The owner `""` means no owner."""

    description: str | UnsetType = UNSET
    private: bool | UnsetType = UNSET
    owner: str | UnsetType = UNSET


class BeyondTopicQuota(Forbidden):
    """The namespace owns too many topics."""


class TopicFlow:
    """Finds and changes topics. `now` returns the database's time, `ends` the ends of the log; a namespace owns at most
    `most` topics."""

    def __init__(self, store: Store, now: Callable[[], Awaitable[datetime]], ends: ReadEnds, *, most: int) -> None:
        self._store = store
        self._now = now
        self._ends = ends
        self._most = most
        self._find = Coalescer[str, Topic | None](self.find_all)
        self._list = Coalescer[None, Sequence[TopicWithCount]](self._list_all)

    async def find(self, name: str) -> Topic | None:
        return await self._find(name)

    async def find_all(self, names: Sequence[str]) -> Sequence[Topic | None]:
        """Find topics in one query; `None` for each that does not exist."""
        found = await self._store.bus_topics.with_names(list(set(names)))
        return [found.get(name) for name in names]

    async def check_publisher(self, name: str, namespace: str) -> Topic | None:
        """Check that the namespace may publish on the topic, without claiming it; `None` if there is no topic. Raises
        `Forbidden`."""
        _check_reserved(name, namespace)
        topic = await self._find(name)
        if topic is not None:
            _check_claim(topic, namespace)
        return topic

    async def claim(self, name: str, namespace: str) -> Topic:
        """Claim the topic for the namespace, or return it if it is its own. Raises `Forbidden` also if the namespace
        owns too many."""
        for _ in range(_TRIES):
            topic = await self.check_publisher(name, namespace)
            if topic is not None and topic.owner == namespace:
                return topic
            await self._check_quota(namespace)
            if topic is None:
                await self._store.bus_topics.add(Topic(id=name, owner=namespace, created_at=await self._now()))
            else:
                await self._store.bus_topics.claim(name, namespace)
        raise Unavailable(f"the topic {name} is made and removed all the time")

    async def put(
        self, name: str, namespace: str, change: TopicChange, *, of_any: bool
    ) -> tuple[TopicWithCount | None, TopicWithCount]:
        """Make or change a topic; returns it before and after. The namespace becomes its owner if it has none and
        `change` names none. `of_any` allows changing topics of other namespaces.

        Raises:
            Forbidden: it belongs to another namespace; `BeyondTopicQuota` if the namespace owns too many.
            Invalid: a private topic would have no owner.
            Conflict: it would be private, and subscriptions of other namespaces have it.
        """
        _check_reserved(name, namespace)
        for _ in range(_TRIES):
            stands = await self._store.bus_topics.get(name)
            if stands is not None and not of_any:
                _check_claim(stands, namespace)
            wanted = await self._grant(name, namespace, stands, change)
            if await self._write(stands, wanted):
                before, after = await self._count([stands or wanted, wanted])
                return None if stands is None else before, after
        raise Unavailable(f"the topic {name} changes all the time")

    async def _grant(self, name: str, namespace: str, stands: Topic | None, change: TopicChange) -> Topic:
        topic = stands or Topic(id=name, created_at=await self._now())
        if isinstance(change.owner, UnsetType) and topic.owner == "":
            await self._check_quota(namespace)
        owner = topic.owner or namespace if isinstance(change.owner, UnsetType) else change.owner
        description = topic.description if isinstance(change.description, UnsetType) else change.description
        private = topic.private if isinstance(change.private, UnsetType) else change.private
        if private and not owner:
            raise Invalid("a private topic must have an owner: set private to false too", field="private", value=True)
        return replace(topic, owner=owner, description=description, private=private)

    async def _write(self, stands: Topic | None, wanted: Topic) -> bool:
        """Store a topic; `False` if it has changed since it was read."""
        if stands == wanted:
            return True
        if stands is None:
            return await self._store.bus_topics.add(wanted)
        try:
            return await self._store.bus_topics.replace(stands, wanted, now=await self._now())
        except TopicSubscribed as error:
            raise _still_wanted(wanted.id, error.others, "it can be private once they have left it") from None

    async def list(self) -> Sequence[TopicWithCount]:
        """All topics by name. Callers that ask before a read begins share it."""
        return await self._list(None)

    async def _list_all(self, asked: Sequence[None]) -> Sequence[Sequence[TopicWithCount]]:
        page = found = await self.page(limit=_PAGE)
        while page.more:
            page = await self.page(after=page[-1].topic.id, limit=_PAGE)
            found += page
        return [found] * len(asked)

    async def page(self, *, after: str = "", limit: int) -> Page[TopicWithCount]:
        topics = await self._store.bus_topics.page(after=after, limit=limit)
        page = Page(await self._count(topics))
        page.more = topics.more
        return page

    async def get(self, name: str) -> TopicWithCount:
        topic = await self._store.bus_topics.get(name)
        if topic is None:
            raise _no_topic(name)
        return (await self._count([topic]))[0]

    async def remove(self, name: str, *, namespace: str | None, of_others: bool) -> None:
        """Remove a topic from the bus and from every subscription, for later events. `namespace` is the caller's,
        `None` if the caller may remove any topic; `of_others` also removes it from subscriptions of others.

        Raises:
            Forbidden: it belongs to another namespace, to none, or to Carillon.
            Conflict: subscriptions of others have it, and `of_others` is false.
        """
        if is_own(name):
            raise Forbidden(f"{name} is Carillon's own", field="topic", value=name)
        for _ in range(_TRIES):
            topic = await self._store.bus_topics.get(name)
            if topic is None:
                raise _no_topic(name)
            if namespace is not None and topic.owner != namespace:
                raise Forbidden(f"the topic {name} is not yours", field="topic", value=name)
            ends, now = await self._ends(), await self._now()
            try:
                if await self._store.bus_topics.remove(name, topic.owner, ends, of_others=of_others, now=now):
                    return
            except TopicSubscribed as error:
                raise _still_wanted(name, error.others, "an admin can delete it") from None
        raise Unavailable(f"the topic {name} changes hands all the time")

    async def _check_quota(self, namespace: str) -> None:
        if namespace != NOTIFIER and await self._store.bus_topics.count_owned(namespace) >= self._most:
            raise BeyondTopicQuota(f"a namespace owns at most {self._most:,} topics", field="topic")

    async def _count(self, topics: Sequence[Topic]) -> Sequence[TopicWithCount]:
        counts = await self._store.bus_topics.read_counts([topic.id for topic in topics])
        return [TopicWithCount(topic, *counts.get(topic.id, (0, 0))) for topic in topics]


def _check_reserved(name: str, namespace: str) -> None:
    if is_own(name) and namespace != NOTIFIER:
        raise Forbidden(f"Carillon alone publishes on {RESERVED_PREFIX} topics", field="topic", value=name)


def _check_claim(topic: Topic, namespace: str) -> None:
    if not topic.may_publish(namespace):
        raise Forbidden(f"the topic {topic.id} is claimed by another publisher", field="topic", value=topic.id)


def _still_wanted(name: str, others: int, remedy: str) -> Conflict:
    subscribed = "1 subscription of others has" if others == 1 else f"{others:,} subscriptions of others have"
    return Conflict(f"{subscribed} the topic {name}: {remedy}", field="topic", value=name)


def _no_topic(name: str) -> NotFound:
    return NotFound(f"there is no topic {name}", field="topic", value=name)


_APPENDED_BYTES = 4 * 2**20
_EVENT_ID_BYTES = 16
_PATIENCE_SECONDS = 0.25  # a round holds up those behind it no longer for partitions that do not answer


class _Append(Struct, frozen=True):
    topic: str
    namespace: str
    ids: list[str]
    keys: Sequence[bytes]
    records: Sequence[bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.records))


_Appended = Collection[asyncio.Future[None]]
"""Futures that end once the log has everything; empty if it has."""


class EventPublisher:
    def __init__(
        self, topics: TopicFlow, stream: Stream, now: Callable[[], Awaitable[datetime]], settings: BusSettings
    ) -> None:
        self._topics = topics
        self._stream = stream
        self._now = now
        self._log = settings.log_topic
        self._seconds = settings.publish_seconds
        self._topic_label, self._publisher_label = BoundedLabels(), BoundedLabels()
        self._append = Coalescer[_Append, _Appended | None](
            self._append_all,
            most=_APPENDED_BYTES,
            size=lambda append: append.size,
            linger_seconds=LINGER_SECONDS,
        )

    async def publish(self, name: str, namespace: str, drafts: Sequence[EventDraft]) -> list[str]:
        """Publish events on a topic, which the namespace claims if it is free; returns their ids in order, once the log
        has them.

        Raises:
            Forbidden: the topic belongs to another namespace, or the namespace owns too many topics.
            Unavailable: the log may or may not have the events. Raised within `publish_seconds`.
        """
        try:
            async with asyncio.timeout(self._seconds):
                append = await self._claim_and_append(name, namespace, drafts)
        except TimeoutError:
            raise Unavailable(f"the log has not answered within {self._seconds:g} s", server="stream") from None
        events, size = _counters(self._topic_label(name), self._publisher_label(namespace))
        events.inc(len(drafts))
        size.inc(append.size)
        await fault("bus.after_append")
        return append.ids

    async def _claim_and_append(self, name: str, namespace: str, drafts: Sequence[EventDraft]) -> _Append:
        """Append first and claim only if needed: nearly every topic is its publisher's already."""
        for _ in range(_TRIES):
            append = await self._stamp(name, namespace, drafts)
            if (appended := await self._append(append)) is not None:
                for done in appended:
                    await asyncio.shield(done)
                return append
            await self._topics.claim(name, namespace)
        raise Unavailable(f"the topic {name} is claimed and removed all the time")

    async def _stamp(self, name: str, namespace: str, drafts: Sequence[EventDraft]) -> _Append:
        at = ms(await self._now())
        ids = [draft.id or secrets.token_hex(_EVENT_ID_BYTES) for draft in drafts]
        records = [stamp(draft, topic=name, id=id, at=at) for draft, id in zip(drafts, ids, strict=True)]
        return _Append(name, namespace, ids, [f"{name}\0{draft.url}".encode() for draft in drafts], records)

    async def _append_all(self, appends: Sequence[_Append]) -> Sequence[_Appended | None]:
        """Append to topics that their publishers own; `None` for the others."""
        topics = await self._topics.find_all([append.topic for append in appends])
        owned = [
            topic is not None and topic.owner == append.namespace for topic, append in zip(topics, appends, strict=True)
        ]
        records = [record for append in compress(appends, owned) for record in append.records]
        keys = [key for append in compress(appends, owned) for key in append.keys]
        late: Sequence[LateRecords] = ()
        if records:
            late = await self._stream.append(
                self._log, records, keys, patience_seconds=_PATIENCE_SECONDS, seconds=self._seconds
            )
        if not late:
            return [() if is_owned else None for is_owned in owned]
        return _share_out(late, appends, owned)


def _share_out(
    late: Sequence[LateRecords], appends: Sequence[_Append], owned: Sequence[bool]
) -> list[_Appended | None]:
    """The futures that each append still waits for if some partitions are late."""
    done_by_place = {place: records.done for records in late for place in records.places}
    shared, first = list[_Appended | None](), 0
    for append, is_owned in zip(appends, owned, strict=True):
        if not is_owned:
            shared.append(None)
            continue
        places = range(first, first + len(append.records))
        shared.append({done_by_place[place] for place in places if place in done_by_place})
        first = places.stop
    return shared


@lru_cache(maxsize=1_000)
def _counters(topic: str, publisher: str) -> tuple[Counter, Counter]:
    return BUS_EVENTS_PUBLISHED.labels(topic, publisher), BUS_EVENT_BYTES.labels(topic, publisher)
