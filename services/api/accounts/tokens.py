"""`/tokens`: the credentials of services. For admins only; a secret is shown once, and only its digest is kept."""

import secrets
from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct

from services.api.accounts.users import AllowedApps, Roles, read_apps
from services.api.http import paging, wire
from services.api.http.identity import caller_of
from services.api.http.ids import fresh_id
from services.api.http.rights import ADMIN
from services.api.http.routes import Resource, Route
from shared.domain.accounts.callers import Token, check_token_name, secret_digest
from shared.domain.accounts.roles import Role, read_roles
from shared.domain.errors import NotFound
from shared.domain.ids import read_uuid
from shared.flow.clock.revocations import RevocationFlow
from shared.runtime.clock import Clock
from shared.store import Store

PREFIX = "carillon_"  # tells secret scanners and people what they have found
SECRET_BYTES = 32


class TokenBody(wire.Body, frozen=True, kw_only=True):
    """A token to be made."""

    name: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 255, "examples": ["billing"]})] = ""
    is_admin: bool = False
    allowed_apps: AllowedApps = None
    roles: Roles = None


class TokenView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A token without its secret. `createdAt` is in nanoseconds since the epoch."""

    id: str
    name: str
    is_admin: bool
    allowed_apps: tuple[str, ...]
    created_by: str
    created_at: int
    roles: dict[str, Role]


class IssuedToken(TokenView, frozen=True, kw_only=True, rename="camel"):
    """A new token. `token` is its secret, to be sent as `Authorization: Bearer <token>`; it is never shown again."""

    token: str


class TokensResource(Resource):
    """The routes of tokens."""

    def __init__(self, store: Store, revocations: RevocationFlow, clock: Clock) -> None:
        self._store = store
        self._revocations = revocations
        self._clock = clock

    @Route(
        "GET", "/tokens", summary="List the tokens, the oldest first, without their secrets.",
        who=ADMIN, answers={HTTPStatus.OK: list[TokenView]}, paged=True,
    )  # fmt: skip
    async def index(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = paging.read_page(request, str)
        tokens = await self._store.tokens.page(after=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, tokens, lambda token: token.id)
        return wire.answer([TokenView(**_fields(token)) for token in tokens], headers=headers)

    @Route(
        "POST", "/tokens", summary="Make a token; the answer holds its secret, for this one time.",
        act="token.create", who=ADMIN, body=TokenBody, answers={HTTPStatus.CREATED: IssuedToken},
    )  # fmt: skip
    async def add(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        body = wire.read(await request.body(), TokenBody)
        check_token_name(body.name)
        secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        now = self._clock.now_ns()
        token = Token(
            id=fresh_id(now),
            name=body.name,
            digest=secret_digest(secret),
            is_admin=body.is_admin,
            allowed_apps=read_apps(body.allowed_apps or ()),
            roles=read_roles(body.roles or {}),
            created_by=caller_of(request).name,
            created_at=now,
        )
        await self._store.tokens.add(token)
        return wire.answer(IssuedToken(**_fields(token), token=secret), HTTPStatus.CREATED)

    @Route(
        "DELETE", "/tokens/{token_id:str}", summary="Revoke a token and pause all that it has scheduled.",
        act="token.revoke", who=ADMIN, answers={HTTPStatus.NO_CONTENT: None}, problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def remove(self, token_id: FromPath[str]) -> Response[None]:
        token = await self._store.tokens.get(read_uuid(token_id, field="tokenId"))
        if token is None:
            raise NotFound("there is no token with this id", field="tokenId", value=token_id)
        await self._revocations.revoke_token(token)
        return wire.empty()


def _fields(token: Token) -> dict[str, Any]:
    return {name: getattr(token, name) for name in TokenView.__struct_fields__}
