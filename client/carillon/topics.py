"""`client.topics`: what events are published on, and publishing them."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from carillon.addresses import path_of
from carillon.calls import M, Resource, call, listing
from carillon.definitions import ItemError
from carillon.encoding import encode
from carillon.errors import CarillonError
from carillon.iterables import each
from carillon.paging import PAGE_SIZE, items
from carillon.transport import NDJSON, Transport

ITEMS = 5_000  # the server takes twice as many
BODY_BYTES = 8 * 2**20  # half of what it takes

Lines = list[bytes]

_GONE = frozenset({int(HTTPStatus.NOT_FOUND)})


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to what `url` names. `type` is `create`, `update` or any other word of `a` to `z`,
    digits, `_`, `.` and `-`. `t` says when; by default when it arrives, in milliseconds. By `id`
    receivers know a repetition; by default one is made. Without `data` there is none; `None` is null."""

    type: str
    url: str
    id: str | UnsetType = UNSET
    t: float | UnsetType = UNSET
    data: Any = UNSET


class PublishedEvent(Struct, frozen=True, kw_only=True):
    """The result of the event with this index. With the status 202 the log has it, by this id."""

    index: int
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


_topic = msgspec.json.Decoder(Topic)
_page = msgspec.json.Decoder(list[Topic])
_results = msgspec.json.Decoder(PublishedEvent)
_one_result = msgspec.json.Decoder(list[PublishedEvent])
_pressure = msgspec.json.Decoder(Pressure)


class Topics(Resource[M]):
    """The topics of the bus. All methods raise `CarillonError`, and `Forbidden` for what only the owner of a topic may
    do."""

    @listing
    def list(self, *, limit: int | None = None, page_size: int = PAGE_SIZE) -> AsyncGenerator[Topic]:
        """All topics by name, read page by page."""
        return items(self._transport, path_of("bus", "topics"), {}, _page, limit=limit, page_size=page_size)

    @call
    async def get(self, topic: str) -> Topic:
        """A topic. Raises `NotFound`."""
        return (await self._transport.call("GET", _of(topic))).read(_topic)

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
        return (await self._transport.call("PUT", _of(topic), content=content, reason=reason)).read(_topic)

    @call
    async def delete(self, topic: str, *, reason: str = "") -> None:
        """Delete a topic, and take it from every subscription. Raises `NotFound`."""
        await self._transport.call("DELETE", _of(topic), reason=reason, done_before=_GONE)

    @call
    async def publish(self, topic: str, event: Event) -> PublishedEvent:
        """Publish an event, on a topic that belongs to the namespace that does so first. It is not attempted again once
        an attempt may have reached the server: `Unavailable` then means that it may be published. A caller that
        publishes it again gives it the same `id`, by which receivers recognize it. Raises `Invalid`."""
        answer = await self._transport.call("POST", _of(topic, "events"), content=encode(event), once=True)
        return answer.read(_one_result)[0]

    @listing
    async def publish_many(
        self, topic: str, events: Iterable[Event] | AsyncIterable[Event]
    ) -> AsyncGenerator[PublishedEvent]:
        """As `publish`, for many: one result per event, in their order. A bad event does not spoil the others.

        They are taken from `events` and sent in chunks as the results are asked for, so their number is not bounded."""
        chunk: Lines = []
        index = size = 0
        async for event in each(events, self._transport.runtime):
            line = encode(event)
            if chunk and (len(chunk) == ITEMS or size + len(line) >= BODY_BYTES):
                for result in await _send(self._transport, topic, chunk):
                    yield replace(result, index=index + result.index)
                index, size, chunk = index + len(chunk), 0, []
            chunk.append(line)
            size += len(line) + 1
        if chunk:
            for result in await _send(self._transport, topic, chunk):
                yield replace(result, index=index + result.index)

    @call
    async def pressure(self) -> Pressure:
        """How much waits on the bus."""
        return (await self._transport.call("GET", path_of("bus", "pressure"))).read(_pressure)


def _of(topic: str, *rest: str) -> str:
    return path_of("bus", "topics", topic, *rest)


async def _send(transport: Transport, topic: str, chunk: Sequence[bytes]) -> Sequence[PublishedEvent]:
    path, content = _of(topic, "events"), b"\n".join(chunk)
    answer = await transport.call("POST", path, content=content, content_type=NDJSON, once=True)
    found = answer.read_lines(_results)
    if [result.index for result in found] != [*range(len(chunk))]:
        raise CarillonError("the answer does not tell of every event, in order", status=answer.status)
    return found
