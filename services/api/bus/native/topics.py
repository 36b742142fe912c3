"""`/bus/topics`: the topics and their owners; and `POST /bus/topics/{name}/events`: up to 10,000 events in one request,
with a result for each.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import UNSET, Meta, Struct, UnsetType

from carillon.wire import ItemError
from services.api.http import bodies, paging
from services.api.http.acts import UNRECORDED, note_change
from services.api.http.bodies import (
    NDJSON,
    ItemsBody,
    Timestamp,
    decode_body,
    item_error,
    read_items,
    read_lone_item,
    status_of,
    without_frames,
)
from services.api.http.identity import caller_of, look_again
from services.api.http.rights import KNOWN
from services.api.http.routes import JSON, Resource, Route
from shared.accounts.rules.apps import read_namespace
from shared.accounts.rules.callers import Caller, user_namespace
from shared.bus.rules.events import (
    DESCRIPTION_CHARACTERS,
    ID_CHARACTERS,
    URL_CHARACTERS,
    EventDraft,
    check_topic_name,
    read_native,
)
from shared.bus.topics import BeyondTopicQuota, EventPublisher, TopicChange, TopicFlow, TopicWithCount
from shared.core.errors import Forbidden, Invalid
from shared.core.instants import format_instant
from shared.runtime.bus_settings import BusSettings
from shared.runtime.loops import Turns

PERSON = "user"
"""The word for the namespace of another person."""
_USER = user_namespace("")


def show_owner(namespace: str, caller: Caller) -> str:
    """A namespace for this caller: a person's is told to that person and to admins."""
    is_told = caller.is_admin or caller.namespace == namespace or not namespace.startswith(_USER)
    return namespace if is_told else PERSON


TOPICS = "/bus/topics"
TOPIC = TOPICS + "/{topic:str}"
SEGMENTS = {"topic": {"type": "string", "pattern": "^[a-z0-9_.-]{1,64}$", "description": "The topic's name."}}


class BusTopicBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A topic. Fields that are left out stay as they are."""

    description: Annotated[
        str | UnsetType,
        Meta(description="A description of the topic.", extra_json_schema={"maxLength": DESCRIPTION_CHARACTERS}),
    ] = UNSET
    private: Annotated[
        bool | UnsetType,
        Meta(description="Whether only its owner's namespace subscribes to it; at first `false`."),
    ] = UNSET
    owner: Annotated[
        str | UnsetType | None,
        Meta(
            description="The namespace that publishes on it; `null` frees it for the next publisher. For admins.",
            extra_json_schema={"examples": ["token:2f1c"]},
        ),
    ] = UNSET


class BusTopicView(Struct, frozen=True):
    """A topic. `owner` is the namespace that publishes on it, `null` if there is none yet, and `user` if it
    is another person (admins see who). Only its owner subscribes to a `private` one. `events` with these `bytes`
    were published on it, as far as they went to subscriptions."""

    name: str
    owner: str | None
    description: str
    private: bool
    created_at: Timestamp
    events: int
    bytes: int


_decoder = msgspec.json.Decoder(BusTopicBody)


class BusTopicsResource(Resource):
    def __init__(self, topics: TopicFlow) -> None:
        self._topics = topics

    @Route(
        "GET", TOPICS, summary="List the topics by name.",
        who=KNOWN, answers={HTTPStatus.OK: list[BusTopicView]}, paged=True,
    )  # fmt: skip
    async def list_bus_topics(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = paging.read_page(request, str)
        found = await self._topics.page(after=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, found, lambda each: each.topic.id)
        return bodies.answer([_show(each, caller_of(request)) for each in found], headers=headers)

    @Route(
        "GET", TOPIC, summary="Show a topic.",
        who=KNOWN, answers={HTTPStatus.OK: BusTopicView}, problems=(HTTPStatus.NOT_FOUND,), segments=SEGMENTS,
    )  # fmt: skip
    async def get_bus_topic(self, request: Request[Any, Any, Any], topic: FromPath[str]) -> Response[bytes]:
        return bodies.answer(_show(await self._topics.get(topic), caller_of(request)))

    @Route(
        "PUT", TOPIC,
        summary="Describe a topic, which becomes the caller's if it has no owner; an admin names the owner.",
        act="topic.replace", who=KNOWN, body=BusTopicBody,
        answers={HTTPStatus.OK: BusTopicView, HTTPStatus.CREATED: BusTopicView}, problems=(HTTPStatus.CONFLICT,),
        segments=SEGMENTS,
    )  # fmt: skip
    async def put_bus_topic(self, request: Request[Any, Any, Any], topic: FromPath[str]) -> Response[bytes]:
        body, caller = decode_body(await request.body(), _decoder), caller_of(request)
        await look_again(request)
        check_topic_name(topic, field="topic")
        if not isinstance(body.description, UnsetType) and len(body.description) > DESCRIPTION_CHARACTERS:
            raise Invalid(f"a description has at most {DESCRIPTION_CHARACTERS:,} characters", field="description")
        if body.owner is not UNSET and not caller.is_admin:
            raise Forbidden("only admins say whose a topic is", field="owner")
        owner = "" if body.owner is None else body.owner
        if isinstance(body.owner, str):
            owner = read_namespace(body.owner, field="owner")
        change = TopicChange(body.description, body.private, owner)
        try:
            before, after = await self._topics.put(topic, caller.namespace, change, of_any=caller.is_admin)
        except BeyondTopicQuota as error:
            raise Invalid(error.reason, field=error.field) from None
        view = _show(after, caller)
        note_change(None if before is None else _show(before, caller), view)
        return bodies.answer(view, HTTPStatus.CREATED if before is None else HTTPStatus.OK)

    @Route(
        "DELETE", TOPIC,
        summary="Delete a topic of the caller's that no other namespace subscribes to (an admin: any topic), and "
                "remove it from every subscription.",
        act="topic.delete", who=KNOWN, answers={HTTPStatus.NO_CONTENT: None},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), segments=SEGMENTS,
    )  # fmt: skip
    async def delete_bus_topic(self, request: Request[Any, Any, Any], topic: FromPath[str]) -> Response[None]:
        caller = caller_of(request)
        namespace = None if caller.is_admin else caller.namespace
        await self._topics.remove(topic, namespace=namespace, of_others=caller.is_admin)
        return bodies.empty()


def _show(found: TopicWithCount, caller: Caller) -> BusTopicView:
    topic = found.topic
    return BusTopicView(
        name=topic.id,
        owner=show_owner(topic.owner, caller) or None,
        description=topic.description,
        private=topic.private,
        created_at=format_instant(topic.created_at),
        events=found.events,
        bytes=found.bytes,
    )


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
    def __init__(self, topics: TopicFlow, publisher: EventPublisher, settings: BusSettings) -> None:
        self._topics = topics
        self._publisher = publisher
        self._data_bytes = settings.data_bytes

    @Route(
        "POST", TOPIC + "/events",
        summary="Publish an event, or up to 10,000 as an array or a line each (application/x-ndjson). The topic "
                "belongs to its first publisher.",
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
            PublishedItemView(index=index, id=None, status=status_of(each), error=item_error(each))
            if isinstance(each, Invalid)
            else PublishedItemView(index=index, id=next(rest), status=HTTPStatus.ACCEPTED)
            for index, each in enumerate(read)
        ]
