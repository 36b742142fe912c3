"""Topics: the first publisher makes or claims a topic; subscribing to it does not claim it."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from shared.domain.bus.topics import NOTIFIER, RESERVED_PREFIX, Topic, is_own
from shared.domain.errors import Conflict, Forbidden, Invalid, NotFound, Unavailable
from shared.flow.bus.registry import ReadEnds
from shared.runtime.coalescer import Coalescer
from shared.store import Store
from shared.store.bus.topics import TopicSubscribed
from shared.store.documents import Page

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
        """Find a topic; concurrent calls share one query."""
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
