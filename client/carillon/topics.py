"""`client.topics`: what events are published on, and publishing them."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from carillon.calls import M, Resource, call, listing
from carillon.definitions import ItemError
from carillon.displays import Result
from carillon.encoding import encode
from carillon.paging import PAGE_SIZE

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
