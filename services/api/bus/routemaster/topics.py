"""`/topics` as Routemaster's clients call it: events are published by name, and answers are plain text."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from litestar.types import Receive, Scope, Send
from msgspec import Meta, Struct

from services.api.bus.native.topics import show_owner
from services.api.http.acts import UNRECORDED
from services.api.http.errors import BadInput
from services.api.http.identity import caller_of, look_again, shown_by
from services.api.http.rights import OnBus
from services.api.http.routes import Resource, Route
from shared.accounts.rules.callers import token_namespace, user_namespace
from shared.bus.rules.events import URL_CHARACTERS, EventDraft, check_object, check_published_name, read_published
from shared.bus.topics import EventPublisher, TopicFlow
from shared.core.errors import Invalid
from shared.runtime.bus_settings import BusSettings
from shared.store import Store

JSON = "application/json"


def answer(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response[bytes]:
    """The value as JSON, with no charset beside the media type and no newline behind it."""
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON)


@lru_cache
def answer_nothing(status: HTTPStatus = HTTPStatus.NO_CONTENT) -> Response[None]:
    """A success that says nothing more: no body, and no media type of one."""
    return _Nothing(None, status_code=status)


class _Nothing(Response[None]):
    """Litestar would write `null` where a status allows a body."""

    def to_asgi_response(self, *_: object, **__: object) -> Any:
        length = [] if self.status_code == HTTPStatus.NO_CONTENT else [(b"content-length", b"0")]

        async def send_head(_: Scope, __: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": self.status_code or 204, "headers": length})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        return send_head


@contextmanager
def refuse_as_bad_input() -> Iterator[None]:
    try:
        yield
    except Invalid as error:
        raise BadInput(error.reason, field=error.field, value=error.value) from None


_TOKEN, _USER = token_namespace(""), user_namespace("")


class OwnerNames:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def look_up(self, request: Request[Any, Any, Any], namespaces: Iterable[str]) -> dict[str, str]:
        caller, wanted = caller_of(request), {*namespaces}
        ids = [namespace.removeprefix(_TOKEN) for namespace in wanted if namespace.startswith(_TOKEN)]
        names = await self._store.tokens.names(ids)
        called = {namespace: _call(show_owner(namespace, caller), names) for namespace in wanted}
        # A namespace that several tokens share, or that no token has any more, is called by its own name.
        return called | {caller.namespace: shown_by(request)}


def _call(namespace: str, names: dict[str, str]) -> str:
    bare = namespace.removeprefix(_TOKEN).removeprefix(_USER)
    return names.get(bare, bare) if namespace.startswith(_TOKEN) else bare


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
    """A topic. `publisher` is the caller's own token, or the name of another's; `null` before the first event.
    `events` were published on it."""

    name: str
    publisher: str | None
    events: int


class PublishedTopicsResource(Resource):
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
        "POST", TOPIC, summary="Publish an event. The topic belongs to its first publisher.",
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
