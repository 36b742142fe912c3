"""`POST /bus/topics/{name}/events`: up to 10,000 events in one request, with a result for each. One bad event does not
spoil the others. Sending the whole again may publish them again: `id` is for receivers."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import UNSET, Meta, Struct, UnsetType

from services.api.bus.native.topics import SEGMENTS, TOPIC
from services.api.http.acts import UNRECORDED
from services.api.http.bulk_items import (
    NDJSON,
    ItemError,
    ItemsBody,
    read_items,
    read_lone_item,
    status_of,
    without_frames,
)
from services.api.http.identity import caller_of, look_again
from services.api.http.rights import KNOWN
from services.api.http.routes import JSON, Resource, Route
from shared.domain.bus.events import ID_CHARACTERS, URL_CHARACTERS, EventDraft, read_native
from shared.domain.bus.topics import check_topic_name
from shared.domain.errors import Invalid
from shared.flow.bus.publish import EventPublisher
from shared.flow.bus.topics import BeyondTopicQuota, TopicFlow
from shared.runtime.bus_settings import BusSettings
from shared.runtime.turns import Turns

ITEMS = 10_000
BODY_BYTES = 16 * 2**20
CHUNK_ITEMS = 1_000


class BusEventBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An event."""

    type: Annotated[str, Meta(description="The type of the event.", pattern="^[a-z0-9_.-]{1,64}$", examples=["update"])]
    url: Annotated[
        str,
        Meta(
            description="The URL of the thing that changed: `https` or `http`, without a query.",
            pattern="^https?://",
            max_length=URL_CHARACTERS,
            examples=["https://app.example.com/widgets/1"],
        ),
    ]
    id: Annotated[
        Annotated[str, Meta(pattern="^[!-~]{1,128}$", max_length=ID_CHARACTERS)] | UnsetType,
        Meta(description="By which receivers know a repetition; by default one is made. Repetitions are not dropped."),
    ] = UNSET
    t: Annotated[
        float | UnsetType | None,
        Meta(description="When it happened, kept as it is written; by default when it arrives, in ms."),
    ] = UNSET
    data: Annotated[Any, Meta(description="Anything more: by default at most 16 KiB of JSON.")] = UNSET


class BusEventItemBody(BusEventBody, frozen=True, forbid_unknown_fields=True):
    """One of several events."""


# In such a union, the generator for TypeScript needs two names for one thing.
BusEventBodies = Annotated[
    BusEventBody | list[BusEventItemBody], Meta(title="BusEventBodies", description="An event, or several.")
]


class PublishedItemView(Struct, frozen=True, kw_only=True):
    """The result of one item. An event with the status 202 is in the log, with this id."""

    index: int
    id: str | None
    status: int
    error: ItemError | None = None


class BusEventsResource(Resource):
    """The route on which events are published."""

    def __init__(self, topics: TopicFlow, publisher: EventPublisher, settings: BusSettings) -> None:
        self._topics = topics
        self._publisher = publisher
        self._data_bytes = settings.data_bytes

    @Route(
        "POST", TOPIC + "/events",
        summary="Publish an event, or up to 10,000 as an array or a line each (application/x-ndjson). The topic "
                "belongs to whoever does so first.",
        act=UNRECORDED, who=KNOWN,
        body=BusEventBodies, body_media=(JSON, NDJSON), max_body_bytes=BODY_BYTES,
        answers={HTTPStatus.ACCEPTED: list[PublishedItemView]}, segments=SEGMENTS,
    )  # fmt: skip
    async def publish_bus_events(self, request: Request[Any, Any, Any], topic: FromPath[str]) -> Response[bytes]:
        content, namespace = await request.body(), caller_of(request).namespace
        await look_again(request)
        check_topic_name(topic, field="topic")
        if (lone := read_lone_item(request, content)) is not None:
            return await self._publish_lone(topic, namespace, lone)
        await self._topics.check_publisher(topic, namespace)
        body = read_items(request, content, most=ITEMS)
        read = await self._read_all(body.items)
        return body.answer(await self._publish_all(topic, namespace, read), HTTPStatus.ACCEPTED)

    async def _publish_lone(self, topic: str, namespace: str, item: bytes) -> Response[bytes]:
        """Publish the only event of a request. The owner of the topic is checked before the event, because publishing
        looks at the topic anyway."""
        read = self._read(item)
        if isinstance(read, Invalid):
            await self._topics.check_publisher(topic, namespace)
            raise read
        views = await self._publish_all(topic, namespace, [read])
        return ItemsBody([item], in_lines=False).answer(views, HTTPStatus.ACCEPTED)

    async def _read_all(self, items: Sequence[bytes]) -> list[EventDraft | Invalid]:
        read, turns = list[EventDraft | Invalid](), Turns()
        for item in items:
            read.append(self._read(item))
            await turns.give()
        return read

    def _read(self, item: bytes) -> EventDraft | Invalid:
        try:
            return read_native(item, data_bytes=self._data_bytes)
        except Invalid as error:
            return without_frames(error)

    async def _publish_all(
        self, topic: str, namespace: str, read: Sequence[EventDraft | Invalid]
    ) -> list[PublishedItemView]:
        drafts, ids = [each for each in read if isinstance(each, EventDraft)], list[str]()
        try:
            for start in range(0, len(drafts), CHUNK_ITEMS):
                ids += await self._publisher.publish(topic, namespace, drafts[start : start + CHUNK_ITEMS])
        except BeyondTopicQuota as error:
            raise Invalid(error.reason, field=error.field) from None
        rest = iter(ids)
        return [
            PublishedItemView(index=index, id=None, status=status_of(each), error=ItemError.of(each))
            if isinstance(each, Invalid)
            else PublishedItemView(index=index, id=next(rest), status=HTTPStatus.ACCEPTED)
            for index, each in enumerate(read)
        ]
