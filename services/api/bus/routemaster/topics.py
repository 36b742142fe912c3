"""`/topics`: publishing an event, listing the topics, and deleting one."""

from http import HTTPStatus
from typing import Annotated, Any, Literal

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct

from services.api.bus.routemaster.answers import answer, answer_nothing, refuse_as_bad_input
from services.api.bus.routemaster.names import OwnerNames
from services.api.http.acts import UNRECORDED
from services.api.http.identity import caller_of, look_again
from services.api.http.rights import OnBus
from services.api.http.routes import Resource, Route
from shared.domain.bus.events import URL_CHARACTERS, EventDraft, check_object, read_published
from shared.domain.bus.topics import check_published_name
from shared.domain.errors import Invalid
from shared.flow.bus.publish import EventPublisher
from shared.flow.bus.topics import TopicFlow
from shared.runtime.bus_settings import BusSettings
from shared.store import Store

TOPIC = "/topics/{topic:str}"
SEGMENTS = {"topic": {"type": "string", "pattern": "^[a-z_]{1,64}$", "description": "The topic's name."}}


class PublishedEventBody(Struct, frozen=True):
    """An event. Keys that are not named here are ignored."""

    type: Literal["create", "update", "delete", "noop"]
    url: Annotated[
        str,
        Meta(
            description="The URL of the thing that changed: `https`, without a query.",
            pattern="^https://",
            max_length=URL_CHARACTERS,
            examples=["https://app.example.com/widgets/1"],
        ),
    ]
    timestamp: Annotated[
        float | None, Meta(description="When it happened, kept as it is written; by default when it arrives, in ms.")
    ] = None
    data: Annotated[
        dict[str, Any] | None, Meta(description="A little more: by default at most 64 bytes of MessagePack.")
    ] = None


class PublishedTopic(Struct, frozen=True):
    """A topic. `publisher` is the caller's own token, or the name of another's; `null` where nobody has published.
    `events` were published on it."""

    name: str
    publisher: str | None
    events: int


class PublishedTopicsResource(Resource):
    """The routes of topics."""

    def __init__(self, store: Store, topics: TopicFlow, publisher: EventPublisher, settings: BusSettings) -> None:
        self._topics = topics
        self._publisher = publisher
        self._settings = settings
        self._names = OwnerNames(store)

    @Route(
        "GET", "/topics", summary="List the topics by name, all of them.",
        who=OnBus.EITHER, answers={HTTPStatus.OK: list[PublishedTopic]},
    )  # fmt: skip
    async def list_topics(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        found = await self._topics.list()
        names = await self._names.look_up(request, {each.topic.owner for each in found} - {""})
        return answer([
            PublishedTopic(each.topic.id, names.get(each.topic.owner), each.events) for each in found
        ])  # fmt: skip

    @Route(
        "POST", TOPIC, summary="Publish an event. The topic belongs to whoever does so first.",
        act=UNRECORDED, who=OnBus.CLIENT, body=PublishedEventBody, answers={HTTPStatus.OK: None},
        segments=SEGMENTS,
    )  # fmt: skip
    async def publish_event(self, request: Request[Any, Any, Any], topic: FromPath[str]) -> Response[None]:
        content, namespace = await request.body(), caller_of(request).namespace
        await look_again(request)
        with refuse_as_bad_input():
            draft = await self._read(content, topic, namespace)
        await self._publisher.publish(topic, namespace, [draft])
        return answer_nothing(HTTPStatus.OK)

    @Route(
        "DELETE", TOPIC, summary="Delete a topic, and take it from every subscription.",
        act="topic.delete", who=OnBus.EITHER, answers={HTTPStatus.NO_CONTENT: None},
        problems=(HTTPStatus.NOT_FOUND,), segments=SEGMENTS,
    )  # fmt: skip
    async def delete_topic(self, request: Request[Any, Any, Any], topic: FromPath[str]) -> Response[None]:
        caller = caller_of(request)
        may_delete_any = caller.is_admin or self._settings.anybody_deletes_topics
        await self._topics.remove(topic, namespace=None if may_delete_any else caller.namespace, of_others=True)
        return answer_nothing()

    async def _read(self, content: bytes, name: str, namespace: str) -> EventDraft:
        """The event of a request. A bad one is refused in Routemaster's order: no object, no name of a topic, another
        publisher's topic, no event. Only a bad one costs a separate look at the topic."""
        try:
            check_published_name(name, field="topic")
            return read_published(content, data_bytes=self._settings.routemaster_data_bytes)
        except Invalid:
            check_object(content)
            check_published_name(name, field="topic")
            await self._topics.check_publisher(name, namespace)
            raise
