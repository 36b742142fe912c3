"""Routemaster's routes for its operators: `/api_tokens`, and `/pulse`, which says whether the bus lives."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct

from services.api.accounts.tokens import fresh_bus_secret
from services.api.bus.routemaster.topics import answer, answer_nothing, refuse_as_bad_input
from services.api.http import errors
from services.api.http.acts import note_name
from services.api.http.bodies import decode_body, hide
from services.api.http.errors import BasicNeeded, Problem, current_request_id, fresh_id
from services.api.http.health import are_passed
from services.api.http.identity import caller_of
from services.api.http.rights import EVERYBODY, OnBus
from services.api.http.routes import Parameter, Resource, Route
from shared.accounts.rules.apps import NAME_CHARACTERS
from shared.accounts.rules.callers import Token, TokenScope, bus_digest, check_token_name
from shared.accounts.rules.secrets import SECRET_CHARACTERS, check_bus_secret
from shared.bus.rules.subscriptions import PUBLISHED_KEY
from shared.bus.standing import QueueStandings
from shared.bus.subscriptions import Subscribing
from shared.clock.revocations import RevocationFlow
from shared.core.errors import Conflict, Invalid, NotFound
from shared.runtime.bus_settings import BusSettings
from shared.runtime.cached import Cached
from shared.runtime.clock import Clock
from shared.store import Store

_PAGE = 1_000
SEGMENTS = {"token": {"type": "string", "description": "A token, or the id of one."}}


class ApiTokenBody(Struct, frozen=True):
    """A token to be made."""

    name: Annotated[
        str, Meta(description="A readable name.", min_length=1, max_length=NAME_CHARACTERS, examples=["billing"])
    ]
    token: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": "^[a-z0-9:_-]{1,64}$", "maxLength": SECRET_CHARACTERS})]
        | None,
        Meta(description="The token itself; by default a random one is made."),
    ] = None


class ApiToken(Struct, frozen=True):
    """A token: itself when it is made, and its id in lists."""

    name: str
    token: str


_decoder = msgspec.json.Decoder(ApiTokenBody)


class ApiTokensResource(Resource):
    def __init__(self, store: Store, revocations: RevocationFlow, subscribing: Subscribing, clock: Clock) -> None:
        self._store = store
        self._revocations = revocations
        self._subscribing = subscribing
        self._clock = clock

    @Route(
        "GET", "/api_tokens", summary="List the tokens of the bus by their ids, the oldest first.",
        who=OnBus.ROOT, answers={HTTPStatus.OK: list[ApiToken], HTTPStatus.NO_CONTENT: None},
    )  # fmt: skip
    async def list_api_tokens(self) -> Response[bytes] | Response[None]:
        after, found = "", list[ApiToken]()
        while page := await self._store.tokens.with_scope(TokenScope.BUS, after=after, limit=_PAGE):
            found += [ApiToken(token.name, token.id) for token in page]
            after = page[-1].id
        return answer(found) if found else answer_nothing()

    @Route(
        "POST", "/api_tokens", summary="Make a token of the bus; the answer shows it, for this one time.",
        act="token.create", who=OnBus.ROOT, body=ApiTokenBody, answers={HTTPStatus.CREATED: ApiToken},
    )  # fmt: skip
    async def create_api_token(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        with refuse_as_bad_input():
            body = decode_body(await request.body(), _decoder)
            check_token_name(body.name)
            secret = fresh_bus_secret(body.name) if body.token is None else body.token
            check_bus_secret(secret, field="token")
            await self._add(body.name, secret, caller_of(request).name)
        note_name("token", body.name)
        return answer(ApiToken(body.name, secret), HTTPStatus.CREATED)

    @Route(
        "DELETE", "/api_tokens/{token:str}",
        summary="Delete a token of the bus, whether it is there or not, and its subscription.",
        act="token.revoke", who=OnBus.ROOT, answers={HTTPStatus.NO_CONTENT: None}, segments=SEGMENTS,
        masks={"token": hide},
    )  # fmt: skip
    async def delete_api_token(self, token: FromPath[str]) -> Response[None]:
        if (found := await self._find(token)) is not None:
            note_name("token", found.name)
            # First, so that who dies in between is asked again; and once more for a request that was in flight.
            is_shared = await self._store.tokens.is_shared(found)
            await self._remove_subscription(found, is_shared=is_shared)
            await self._revocations.revoke_token(found)
            await self._remove_subscription(found, is_shared=is_shared)
        return answer_nothing()

    async def _add(self, name: str, secret: str, made_by: str) -> None:
        """Make the token, unless it exists with this name. Raises `Invalid` if it exists with another."""
        now = self._clock.now_ns()
        token = Token(
            id=fresh_id(now),
            name=name,
            digest=bus_digest(secret),
            scope=TokenScope.BUS,
            created_by=made_by,
            created_at=now,
        )
        try:
            await self._store.tokens.add(token)
        except Conflict:
            known = await self._find_by_secret(secret)
            if known is None or known.name != name:
                raise Invalid("this token exists already, by another name", field="token") from None

    async def _find(self, shown: str) -> Token | None:
        found = await self._find_by_secret(shown) or await self._store.tokens.get(shown)
        return found if found is not None and found.scope is TokenScope.BUS else None

    async def _find_by_secret(self, secret: str) -> Token | None:
        digest = bus_digest(secret)
        return (await self._store.tokens.with_digests([digest])).get(digest)

    async def _remove_subscription(self, token: Token, *, is_shared: bool) -> None:
        if not is_shared:
            with suppress(NotFound):
                await self._subscribing.unsubscribe(token.owns, PUBLISHED_KEY)


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
