"""Topics: who may publish on them. The first who publishes makes a topic or claims it; to subscribe leaves it free."""

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
    """A topic, and how many events were published on it, with their bytes: exact, as far as the fan-out has read."""

    topic: Topic
    events: int
    bytes: int


class TopicChange(Struct, frozen=True):
    """The fields that a topic is to have from now on; those that are `UNSET` stay. The owner `""` is nobody."""

    description: str | UnsetType = UNSET
    private: bool | UnsetType = UNSET
    owner: str | UnsetType = UNSET


class BeyondTopicQuota(Forbidden):
    """The namespace owns as many topics as it may."""


class TopicFlow:
    """Looks topics up and moves them. `now` returns the database's time, `ends` the ends of the log; a namespace owns
    at most `most` topics. All raise `Unavailable`."""

    def __init__(self, store: Store, now: Callable[[], Awaitable[datetime]], ends: ReadEnds, *, most: int) -> None:
        self._store = store
        self._now = now
        self._ends = ends
        self._most = most
        self._find = Coalescer[str, Topic | None](self.find_all)
        self._list = Coalescer[None, Sequence[TopicWithCount]](self._list_all)

    async def find(self, name: str) -> Topic | None:
        """A topic; who asks at the same time goes together."""
        return await self._find(name)

    async def find_all(self, names: Sequence[str]) -> Sequence[Topic | None]:
        """These topics in their order, `None` for one that is not there. One look."""
        found = await self._store.bus_topics.with_names(list(set(names)))
        return [found.get(name) for name in names]

    async def check_publisher(self, name: str, namespace: str) -> Topic | None:
        """The topic as it stands, if there is one, on which this namespace may publish. Nothing is claimed.

        Raises:
            Forbidden: it belongs to another one.
        """
        _check_reserved(name, namespace)
        topic = await self._find(name)
        if topic is not None:
            _check_claim(topic, namespace)
        return topic

    async def claim(self, name: str, namespace: str) -> Topic:
        """The topic, which belongs to this namespace from now on.

        Raises:
            Forbidden: it belongs to another one, or the namespace owns as many as it may.
        """
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
        """Make a topic or change it; returns how it stood and how it stands. It belongs to this namespace from now on
        where it was nobody's and `change` does not say whose it is. With `of_any`, those of others are changed too.

        Raises:
            Forbidden: it belongs to another one; `BeyondTopicQuota` where the namespace owns as many as it may.
            Invalid: it is to be private, and has no owner.
            Conflict: it is to be private, and subscriptions of others have it.
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
        """The topic as it is to be. Raises `BeyondTopicQuota`."""
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
        """Store a topic; `False` where it is not as it was read."""
        if stands == wanted:
            return True
        if stands is None:
            return await self._store.bus_topics.add(wanted)
        try:
            return await self._store.bus_topics.replace(stands, wanted, now=await self._now())
        except TopicSubscribed as error:
            raise _still_wanted(wanted.id, error.others, "it can be private once they have left it") from None

    async def list(self) -> Sequence[TopicWithCount]:
        """All topics by name. One look at them serves all who ask before it begins."""
        return await self._list(None)

    async def _list_all(self, asked: Sequence[None]) -> Sequence[Sequence[TopicWithCount]]:
        page = found = await self.page(limit=_PAGE)
        while page.more:
            page = await self.page(after=page[-1].topic.id, limit=_PAGE)
            found += page
        return [found] * len(asked)

    async def page(self, *, after: str = "", limit: int) -> Page[TopicWithCount]:
        """The next topics behind this name, by name."""
        topics = await self._store.bus_topics.page(after=after, limit=limit)
        page = Page(await self._count(topics))
        page.more = topics.more
        return page

    async def get(self, name: str) -> TopicWithCount:
        """A topic with its counts. Raises `NotFound`."""
        topic = await self._store.bus_topics.get(name)
        if topic is None:
            raise _no_topic(name)
        return (await self._count([topic]))[0]

    async def remove(self, name: str, *, namespace: str | None, of_others: bool) -> None:
        """Remove a topic and take it from every subscription, for events that are accepted later. `namespace` is the
        caller's, `None` if the caller may remove any; `of_others` says whether subscriptions of others lose it too.

        Raises:
            NotFound: there is none.
            Forbidden: it belongs to another namespace, or to none, or is Carillon's own.
            Conflict: subscriptions of others have it, and it is not to be taken from these.
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
