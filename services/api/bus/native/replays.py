"""`/bus/subscriptions/{key}/replays`: events that the log still has, brought to a subscription once more.
`?namespace=` names another namespace, over which the caller needs a role."""

from functools import partial
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath

from services.api.accounts.namespaces import NAMESPACE, namespace_of
from services.api.bus.native.replay_view import ReplayBody, ReplayView, read_replay_wish, replay_view
from services.api.bus.native.subscriptions import BUS_SUBSCRIPTION, SEGMENTS
from services.api.http import paging, wire
from services.api.http.rights import OPERATE_NAMESPACE, VIEW_NAMESPACE
from services.api.http.routes import Resource, Route
from shared.flow.bus.replays import BusReplayFlow

BUS_REPLAYS = BUS_SUBSCRIPTION + "/replays"

_NOT_FOUND, _CONFLICT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
_route = partial(Route, segments=SEGMENTS, parameters=(NAMESPACE,))


class BusReplaysResource(Resource):
    """The routes of replays."""

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
        return wire.answer(replay_view(replay), HTTPStatus.ACCEPTED)

    @_route(
        "GET", BUS_REPLAYS, summary="List the replays of a subscription and how far they are, the last first.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[ReplayView]}, problems=(_NOT_FOUND,), paged=True,
    )  # fmt: skip
    async def list_bus_replays(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        asked = paging.read_page(request, int)
        found = await self._flow.page(namespace_of(request), key, below=asked.after, limit=asked.limit)
        headers = paging.links(request, asked, found, lambda replay: replay.number)
        return wire.answer([replay_view(replay) for replay in found], headers=headers)

    @_route(
        "DELETE", BUS_REPLAYS, summary="Cancel the replays of a subscription. Events that they brought stay queued.",
        act="replay.cancel", who=OPERATE_NAMESPACE, answers={HTTPStatus.NO_CONTENT: None}, problems=(_NOT_FOUND,),
    )  # fmt: skip
    async def cancel_bus_replays(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[None]:
        await self._flow.cancel(namespace_of(request), key)
        return wire.empty()
