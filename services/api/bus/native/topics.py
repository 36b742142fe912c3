"""`/bus/topics`: what events are published on, and whom each topic belongs to."""

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import UNSET, Meta, Struct, UnsetType

from services.api.bus.owners import show_owner
from services.api.http import paging, wire
from services.api.http.acts import note_change
from services.api.http.identity import caller_of, look_again
from services.api.http.rights import KNOWN
from services.api.http.routes import Resource, Route
from services.api.http.strict_bodies import decode_body
from services.api.http.wire import Timestamp
from shared.domain.accounts.callers import Caller
from shared.domain.accounts.roles import read_namespace
from shared.domain.bus.topics import DESCRIPTION_CHARACTERS, check_topic_name
from shared.domain.errors import Forbidden, Invalid
from shared.domain.instants import format_instant
from shared.flow.bus.topics import BeyondTopicQuota, TopicChange, TopicFlow, TopicWithCount

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
            description="The namespace that publishes on it; `null` frees it for whoever publishes next. For admins.",
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
    """The routes of topics."""

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
        return wire.answer([_show(each, caller_of(request)) for each in found], headers=headers)

    @Route(
        "GET", TOPIC, summary="Show a topic.",
        who=KNOWN, answers={HTTPStatus.OK: BusTopicView}, problems=(HTTPStatus.NOT_FOUND,), segments=SEGMENTS,
    )  # fmt: skip
    async def get_bus_topic(self, request: Request[Any, Any, Any], topic: FromPath[str]) -> Response[bytes]:
        return wire.answer(_show(await self._topics.get(topic), caller_of(request)))

    @Route(
        "PUT", TOPIC,
        summary="Describe a topic, which is the caller's from now on where it was nobody's; an admin says whose it is.",
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
        return wire.answer(view, HTTPStatus.CREATED if before is None else HTTPStatus.OK)

    @Route(
        "DELETE", TOPIC,
        summary="Delete a topic of the caller's that nobody else subscribes to, or as an admin any, and take it from "
                "every subscription.",
        act="topic.delete", who=KNOWN, answers={HTTPStatus.NO_CONTENT: None},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), segments=SEGMENTS,
    )  # fmt: skip
    async def delete_bus_topic(self, request: Request[Any, Any, Any], topic: FromPath[str]) -> Response[None]:
        caller = caller_of(request)
        namespace = None if caller.is_admin else caller.namespace
        await self._topics.remove(topic, namespace=namespace, of_others=caller.is_admin)
        return wire.empty()


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
