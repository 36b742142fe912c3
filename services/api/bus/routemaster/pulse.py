"""`/pulse` and `/health`: whether the bus is well, and whether it needs more workers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from msgspec import Struct

from services.api.bus.routemaster.answers import answer, answer_nothing
from services.api.http import errors
from services.api.http.errors import BasicNeeded, Problem
from services.api.http.health import are_passed
from services.api.http.request_ids import current_request_id
from services.api.http.rights import EVERYBODY, OnBus
from services.api.http.routes import Parameter, Resource, Route
from shared.flow.bus.standing import QueueStandings
from shared.runtime.bus_settings import BusSettings
from shared.runtime.cached import Cached
from shared.runtime.clock import Clock

LATE_SECONDS = 1.0
_ACCEPT = Parameter(
    name="accept",
    description="`application/json`: tell at once how many batches are due.",
    schema={"type": "string"},
    place="header",
)
_NO_PULSE = "the store or the log does not answer"


class BusScaling(Struct, frozen=True):
    """How many batches are due, and from how many on the bus needs more workers."""

    due: int
    threshold: int


class Pong(Struct, frozen=True):
    """When the API answered."""

    pong: str


class Nothing(Struct, frozen=True):
    """An empty object."""


class PulseResource(Resource):
    """The routes that monitors and load balancers ask. `checks` raise `Unavailable` where a server does not answer."""

    def __init__(
        self,
        checks: Sequence[Callable[[], Awaitable[None]]],
        standings: QueueStandings,
        settings: BusSettings,
        clock: Clock,
    ) -> None:
        self._is_well = Cached(lambda: are_passed(*checks))
        self._standings = standings
        self._settings = settings
        self._clock = clock

    @Route(
        "GET", "/pulse", summary="Tell whether the bus is well.",
        who=OnBus.EITHER, answers={HTTPStatus.NO_CONTENT: None},
    )  # fmt: skip
    async def take_pulse(self) -> Response[Any]:
        return answer_nothing() if await self._is_well.get() else _tell_no_pulse()

    @Route(
        "GET", "/pulse/scaling", summary="Answer a second late where more workers are needed, or tell it in figures.",
        who=OnBus.EITHER, answers={HTTPStatus.NO_CONTENT: None, HTTPStatus.OK: BusScaling}, parameters=(_ACCEPT,),
    )  # fmt: skip
    async def tell_scaling(self, request: Request[Any, Any, Any]) -> Response[Any]:
        due, threshold = await self._standings.count_due_batches(), self._settings.scaling_threshold
        if "application/json" in request.headers.get("accept", ""):
            return answer(BusScaling(due, threshold))
        if due >= threshold:
            await asyncio.sleep(LATE_SECONDS)
        return answer_nothing()

    @Route(
        "GET", "/health", summary="Tell that the API answers.",
        who=EVERYBODY, answers={HTTPStatus.OK: Nothing}, problems=(HTTPStatus.UNAUTHORIZED,),
        any_query=True,  # as Routemaster, and probes add parameters against caches
    )  # fmt: skip
    async def show_bus_health(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        _refuse_credentials(request)
        return answer(Nothing())

    @Route(
        "GET", "/health/ping", summary="Tell when the API answered.",
        who=EVERYBODY, answers={HTTPStatus.OK: Pong}, problems=(HTTPStatus.UNAUTHORIZED,),
        any_query=True,
    )  # fmt: skip
    async def ping_bus(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        _refuse_credentials(request)
        return answer(Pong(self._clock.now().strftime("%Y-%m-%d %H:%M:%S %z")))

    @Route(
        "GET", "/health/ping.json", summary="The same, by its other name.",
        who=EVERYBODY, answers={HTTPStatus.OK: Pong}, problems=(HTTPStatus.UNAUTHORIZED,),
        any_query=True,
    )  # fmt: skip
    async def ping_bus_file(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        return await self.ping_bus(request)


def _refuse_credentials(request: Request[Any, Any, Any]) -> None:
    """Raise `BasicNeeded` for any credentials: a caller who tests them learns that they open nothing."""
    if "authorization" in request.headers:
        raise BasicNeeded("this route takes no credentials")


def _tell_no_pulse() -> Response[bytes]:
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    problem = Problem(
        title=status.phrase, status=status, detail=_NO_PULSE, reason=_NO_PULSE, request_id=current_request_id()
    )
    return Response(errors.content(problem), status_code=status, media_type=errors.PROBLEM)
