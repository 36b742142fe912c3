"""`/bus/subscriptions/{key}/replays`: events that the log still has, brought to a subscription again."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import UNSET, Meta, Struct, UnsetType

from services.api.accounts.apps import NAMESPACE, namespace_of
from services.api.bus.native.subscriptions import BUS_SUBSCRIPTION, SEGMENTS, FilterBody, read_filter, show_filter
from services.api.http import bodies, paging
from services.api.http.bodies import Timestamp, decode_body
from services.api.http.rights import OPERATE_NAMESPACE, VIEW_NAMESPACE
from services.api.http.routes import Resource, Route
from shared.bus.replays import BusReplayFlow, ReplayWish
from shared.bus.rules.events import check_topic_name
from shared.bus.rules.replays import Replay, ReplayState
from shared.core.errors import Invalid
from shared.core.instants import format_instant, format_maybe, read_instant

MOST_TOPICS = 1_000


class ReplayBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events are delivered again: those that arrived `from` this time to before `to`, or until now. Without
    `topics` and `filter`, those of the subscription hold."""

    since: Annotated[str, Meta(examples=["2026-12-24T14:00:00Z"])] = msgspec.field(name="from")
    until: Annotated[str, Meta(examples=["2026-12-24T15:00:00Z"])] | UnsetType = msgspec.field(name="to", default=UNSET)
    topics: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MOST_TOPICS)] | UnsetType = UNSET
    filter: FilterBody | UnsetType = UNSET


class ReplayView(Struct, frozen=True, kw_only=True):
    """A replay. One that began by itself, as its subscription was resumed, or by the retry of a dead letter has no
    `from`. It has `read` some of the `total` records of the log, of all topics, and brought `events` of them;
    `lost` counts records that the log no longer had. `begins_late`: the log does not reach back to where it was to
    begin. `reason` says why it waits, or why it is over."""

    number: int
    state: ReplayState
    reason: str
    since: Timestamp | None = msgspec.field(name="from")
    until: Timestamp | None = msgspec.field(name="to")
    topics: tuple[str, ...]
    filter: FilterBody | None
    total: int
    read: int
    events: int
    lost: int
    begins_late: bool
    created_at: Timestamp
    ended_at: Timestamp | None


_replay = msgspec.json.Decoder(ReplayBody)


def read_replay_wish(content: bytes) -> ReplayWish:
    body = decode_body(content, _replay)
    topics = () if isinstance(body.topics, UnsetType) else body.topics
    for name in topics:
        check_topic_name(name, field="topics")
    since = read_instant(body.since, field="from")
    until = None if isinstance(body.until, UnsetType) else read_instant(body.until, field="to")
    if until is not None and until <= since:
        raise Invalid("must be later than 'from'", field="to", value=body.until)
    wanted = read_filter(body.filter)
    return ReplayWish(
        since=since,
        until=until,
        topics=tuple(sorted(set(topics))),
        filter=None if isinstance(wanted, UnsetType) else wanted,
    )


def replay_view(replay: Replay) -> ReplayView:
    return ReplayView(
        number=replay.number,
        state=replay.state,
        reason=replay.reason,
        since=format_maybe(replay.since),
        until=format_maybe(replay.until),
        topics=replay.topics,
        filter=None if replay.filter is None else show_filter(replay.filter),
        total=replay.total,
        read=replay.read,
        events=replay.events,
        lost=replay.lost,
        begins_late=replay.begins_late,
        created_at=format_instant(replay.created_at),
        ended_at=format_maybe(replay.ended_at),
    )


BUS_REPLAYS = BUS_SUBSCRIPTION + "/replays"
_NOT_FOUND, _CONFLICT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
_route = partial(Route, segments=SEGMENTS, parameters=(NAMESPACE,))


class BusReplaysResource(Resource):
    def __init__(self, flow: BusReplayFlow) -> None:
        self._flow = flow

    @_route(
        "POST", BUS_REPLAYS,
        summary="Have events delivered to a subscription again: those that arrived in this time, while the log lasts.",
        act="replay.create", who=OPERATE_NAMESPACE, body=ReplayBody, answers={HTTPStatus.ACCEPTED: ReplayView},
        problems=(_NOT_FOUND, _CONFLICT),
    )  # fmt: skip
    async def start_bus_replay(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        wish = read_replay_wish(await request.body())
        replay = await self._flow.start(namespace_of(request), key, wish)
        return bodies.answer(replay_view(replay), HTTPStatus.ACCEPTED)

    @_route(
        "GET", BUS_REPLAYS, summary="List the replays of a subscription and how far they are, the last first.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[ReplayView]}, problems=(_NOT_FOUND,), paged=True,
    )  # fmt: skip
    async def list_bus_replays(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        asked = paging.read_page(request, int)
        found = await self._flow.page(namespace_of(request), key, below=asked.after, limit=asked.limit)
        headers = paging.links(request, asked, found, lambda replay: replay.number)
        return bodies.answer([replay_view(replay) for replay in found], headers=headers)

    @_route(
        "DELETE", BUS_REPLAYS, summary="Cancel the replays of a subscription. Events that they brought stay queued.",
        act="replay.cancel", who=OPERATE_NAMESPACE, answers={HTTPStatus.NO_CONTENT: None}, problems=(_NOT_FOUND,),
    )  # fmt: skip
    async def cancel_bus_replays(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[None]:
        await self._flow.cancel(namespace_of(request), key)
        return bodies.empty()
