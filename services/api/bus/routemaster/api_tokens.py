"""`/api_tokens`: the tokens of the bus's clients, for its root.

A token may be a word that somebody chose, so it opens the bus and nothing else. Only its digest is kept. Lists show
ids, by which a token can be deleted too.
"""

from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct

from services.api.accounts.tokens import fresh_bus_secret
from services.api.bus.routemaster.answers import answer, answer_nothing, refuse_as_bad_input
from services.api.http.acts import note_name
from services.api.http.identity import caller_of
from services.api.http.ids import fresh_id
from services.api.http.rights import OnBus
from services.api.http.routes import Resource, Route
from services.api.http.strict_bodies import decode_body
from services.api.http.wire import hide
from shared.domain.accounts.apps import NAME_CHARACTERS
from shared.domain.accounts.bus_tokens import SECRET_CHARACTERS, check_bus_secret
from shared.domain.accounts.callers import Token, TokenScope, bus_digest, check_token_name
from shared.domain.bus.subscriptions import PUBLISHED_KEY
from shared.domain.errors import Conflict, Invalid, NotFound
from shared.flow.bus.subscribing import Subscribing
from shared.flow.clock.revocations import RevocationFlow
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
        Meta(description="The token itself; by default one is made that nobody can guess."),
    ] = None


class ApiToken(Struct, frozen=True):
    """A token: itself when it is made, and its id in lists."""

    name: str
    token: str


_decoder = msgspec.json.Decoder(ApiTokenBody)


class ApiTokensResource(Resource):
    """The routes of the clients' tokens."""

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
        """Remove a token's subscription, unless other tokens share its namespace."""
        if not is_shared:
            with suppress(NotFound):
                await self._subscribing.unsubscribe(token.owns, PUBLISHED_KEY)
