"""Publish events, and follow them: `client.topics`, `client.bus_deliveries`, `client.bus_dead_letters`."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from carillon.attempts import query_of
from carillon.calls import GONE, PAGE_SIZE, M, Resource, call, listing
from carillon.values import encode, written
from carillon.wire import ItemError, Result, Short

ITEMS = 5_000  # the server takes twice as many


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to what `url` names. `type` is `create`, `update` or any other word of `a` to `z`,
    digits, `_`, `.` and `-`. `t` says when; by default when it arrives, in milliseconds. By `id`
    receivers know a repetition; by default one is made. Without `data` there is none; `None` is null."""

    type: str
    url: str
    id: str | UnsetType = UNSET
    t: float | UnsetType = UNSET
    data: Any = UNSET


class PublishedEvent(Result, frozen=True, kw_only=True):
    """The result of the event with this index. With the status 202 the log has it, by this id."""

    id: str | None
    status: int
    error: ItemError | None = None

    @property
    def accepted(self) -> bool:
        """Whether it is published."""
        return self.status == HTTPStatus.ACCEPTED


class Topic(Struct, frozen=True, kw_only=True):
    """A topic. `owner` is the namespace that publishes on it, `None` if there is none yet. Only its owner
    subscribes to a `private` one. `events` with these `bytes` were published on it, as far as they went to
    subscriptions."""

    name: str
    owner: str | None
    description: str
    created_at: datetime
    events: int
    bytes: int
    private: bool = False


class Pressure(Struct, frozen=True, kw_only=True):
    """How much waits on the bus, at most a second ago: batches that are `due`, events that are `queued`, for how long
    the oldest of them has been, and records of the log that are in no queue yet."""

    due: int
    queued: int
    oldest_seconds: float
    log_lag: int


class Topics(Resource[M]):
    """The topics of the bus. All methods raise `CarillonError`, and `Forbidden` for what only the owner of a topic may
    do."""

    @listing
    def list(self, *, limit: int | None = None, page_size: int = PAGE_SIZE) -> AsyncGenerator[Topic]:
        """All topics by name, read page by page."""
        return self._list(list[Topic], "bus", "topics", limit=limit, page_size=page_size)

    @call
    async def get(self, topic: str) -> Topic:
        """A topic. Raises `NotFound`."""
        return await self._get(Topic, "bus", "topics", topic)

    @call
    async def put(
        self,
        topic: str,
        *,
        description: str | UnsetType = UNSET,
        private: bool | UnsetType = UNSET,
        owner: str | UnsetType | None = UNSET,
        reason: str = "",
    ) -> Topic:
        """Make a topic, or describe it; one without an owner becomes the caller's. Only its owner subscribes to a
        `private` one. Admins may name its `owner`: a namespace, or `None` for none. Raises `Invalid`, and `Conflict` if
        it is to be private and others subscribe to it."""
        given = {"description": description, "private": private, "owner": owner}
        content = encode({name: value for name, value in given.items() if value is not UNSET})
        return await self._put(Topic, "bus", "topics", topic, content=content, reason=reason)

    @call
    async def delete(self, topic: str, *, reason: str = "") -> None:
        """Delete a topic, and take it from every subscription. Raises `NotFound`."""
        await self._delete("bus", "topics", topic, reason=reason)

    @call
    async def publish(self, topic: str, event: Event) -> PublishedEvent:
        """Publish an event, on a topic that belongs to the namespace that does so first. It is not attempted again once
        an attempt may have reached the server: `Unavailable` then means that it may be published. A caller that
        publishes it again gives it the same `id`, by which receivers recognize it. Raises `Invalid`."""
        answer = await self._call("POST", "bus", "topics", topic, "events", content=encode(event), once=True)
        return answer.read(list[PublishedEvent])[0]

    @listing
    def publish_many(
        self, topic: str, events: Iterable[Event] | AsyncIterable[Event]
    ) -> AsyncGenerator[PublishedEvent]:
        """As `publish`, for many: one result per event, in their order. A bad event does not spoil the others.

        They are taken from `events` and sent in chunks as the results are asked for, so their number is not bounded."""
        return self._send_all(PublishedEvent, events, "bus", "topics", topic, "events", at_once=ITEMS, once=True)

    @call
    async def pressure(self) -> Pressure:
        """How much waits on the bus."""
        return await self._get(Pressure, "bus", "pressure")


class BusAttempt(Struct, frozen=True, kw_only=True):
    """One call of a receiver, its duration in `ms`, and the `status` of its answer, or 0 and the `error`; `excerpt` is
    the beginning of the answer's body."""

    at: datetime
    ms: int
    status: int
    error: str
    excerpt: str


class BusDeadLetter(Short, frozen=True, kw_only=True):
    """Events that were not taken; `id` is their delivery's. `reason` is `attempts`, `age` or `backlog`: in the last
    case there is no delivery, and a retry replays the events while the log has them; where it is not known in which log
    they lie, nothing `can_be_retried`. The first three and the last three of the `made` attempts are shown. `redacted`
    says that excerpts and events are left out: the caller is a viewer.
    """

    id: str
    namespace: str
    key: str
    reason: str
    died_at: datetime
    count: int
    bytes: int
    first_at: datetime
    last_at: datetime | None = None
    made: int
    attempts: tuple[BusAttempt, ...] = ()
    can_be_retried: bool
    redacted: bool = False


class WholeBusDeadLetter(BusDeadLetter, frozen=True, kw_only=True):
    """A dead letter with its events: each the JSON that its receiver would have got."""

    events: tuple[Raw, ...] = ()


class BusRetried(Struct, frozen=True):
    """How many deliveries are open again. If there are `more`, ask again."""

    retried: int
    more: bool


class BusDeadLetters(Resource[M]):
    """The caller's own, or those of another `namespace` over which the caller has a role. All methods raise
    `CarillonError`."""

    @listing
    def list(
        self, *, key: str = "", namespace: str = "", limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[BusDeadLetter]:
        """All of them, or those of one key, the newest first; read page by page."""
        query = query_of(key=key, namespace=namespace)
        return self._list(list[BusDeadLetter], "bus", "dead-letters", query=query, limit=limit, page_size=page_size)

    @call
    async def get(self, id: str, *, namespace: str = "") -> WholeBusDeadLetter:
        """A dead letter with its events. Raises `NotFound`."""
        return await self._get(WholeBusDeadLetter, "bus", "dead-letters", id, query=query_of(namespace=namespace))

    @call
    async def retry(self, id: str, *, namespace: str = "", reason: str = "") -> None:
        """Deliver one again, with the id that it had. Raises `NotFound`, `Conflict` if that cannot be."""
        query = query_of(namespace=namespace)
        await self._call("POST", "bus", "dead-letters", id, "retry", query=query, reason=reason, done_before=GONE)

    @call
    async def retry_all(self, *, key: str | None = None, namespace: str = "", reason: str = "") -> BusRetried:
        """Deliver them again, or those of one key: about 500 a call. None is delivered twice by it; but after an
        attempt whose answer was lost, those that it dealt with are not counted."""
        content = encode({} if key is None else {"key": key})
        query = query_of(namespace=namespace)
        return await self._post(BusRetried, "bus", "dead-letters", "retry", query=query, content=content, reason=reason)

    @call
    async def discard(self, id: str, *, namespace: str = "", reason: str = "") -> None:
        """Give one up. Raises `NotFound`."""
        query = query_of(namespace=namespace)
        await self._call("POST", "bus", "dead-letters", id, "discard", query=query, reason=reason, done_before=GONE)


class BusDelivery(Short, frozen=True, kw_only=True):
    """One batch of `count` events for the subscription with this key; `id` is the `webhook-id` of its calls. Its
    `status` is `open`, `delivered`, `dead` or `discarded`. The first three and the last three of the `made` attempts
    are shown; `failures` of those made failed while others of the subscription succeeded. `redacted` says that excerpts
    and events are left out: the caller is a viewer."""

    id: str
    key: str
    sequence: int
    status: str
    count: int
    bytes: int
    first_at: datetime
    cut_at: datetime
    retry_at: datetime | None = None
    settled_at: datetime | None = None
    made: int
    failures: int
    attempts: tuple[BusAttempt, ...] = ()
    redacted: bool = False


class WholeBusDelivery(BusDelivery, frozen=True, kw_only=True):
    """A delivery, and its events where they were asked for: each the JSON that its receiver gets."""

    events: tuple[Raw, ...] = ()


class BusDeliveries(Resource[M]):
    """Deliveries of the caller's own subscriptions, or of another `namespace`'s over which the caller has a role. All
    methods raise `CarillonError`, and `ValueError` for an instant without a zone."""

    @listing
    def list(
        self,
        key: str,
        *,
        status: str = "",
        since: int | datetime | None = None,
        namespace: str = "",
        limit: int | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[BusDelivery]:
        """Those of a subscription, the newest first, read page by page: in one status, behind the sequence `since`, or
        cut at this time or later. Raises `NotFound`."""
        start = written(since, "since") if isinstance(since, datetime) else "" if since is None else str(since)
        query = query_of(status=status, since=start, namespace=namespace)
        return self._list(
            list[BusDelivery], "bus", "subscriptions", key, "deliveries", query=query, limit=limit, page_size=page_size
        )

    @call
    async def get(self, id: str, *, events: bool = False, namespace: str = "") -> WholeBusDelivery:
        """A delivery, with its `events` if these are asked for. Raises `NotFound`, also (with `status` 410) where the
        log has its events no more."""
        query = query_of(events="true" if events else "", namespace=namespace)
        return await self._get(WholeBusDelivery, "bus", "deliveries", id, query=query)
