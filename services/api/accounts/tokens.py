"""`/tokens`: the credentials of services. For admins only; a secret is shown once, and only its digest is kept."""

import secrets
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct

from services.api.accounts.users import AllowedApps, Roles, read_apps
from services.api.http import bodies, paging
from services.api.http.acts import note_change, note_name
from services.api.http.bodies import Timestamp
from services.api.http.errors import fresh_id
from services.api.http.identity import caller_of
from services.api.http.rights import ADMIN
from services.api.http.routes import Resource, Route
from shared.accounts.rules.apps import Role, read_roles
from shared.accounts.rules.callers import (
    LARGEST_MESSAGE_RATE,
    MESSAGES_PER_SECOND,
    SMALLEST_MESSAGE_RATE,
    Token,
    TokenScope,
    bus_digest,
    check_message_rate,
    check_token_name,
    check_token_namespace,
    secret_digest,
)
from shared.accounts.rules.secrets import RANDOM_BYTES, make_bus_secret
from shared.clock.revocations import RevocationFlow
from shared.core.errors import Conflict, Invalid, NotFound
from shared.core.ids import read_uuid
from shared.core.instants import format_instant, read_instant
from shared.runtime.clock import Clock
from shared.store import Store

PREFIX = "carillon_"  # tells secret scanners and people what they have found
SECRET_BYTES = 32
MOST_OVERLAP_SECONDS = 30 * 86_400
TOKEN = "/tokens/{token_id:str}"

ExpiresAt = Annotated[Timestamp | None, Meta(description="When it ends by itself; by default never.")]


class TokenBody(bodies.Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to be made."""

    name: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 255, "examples": ["billing"]})] = ""
    is_admin: bool = False
    allowed_apps: AllowedApps = None
    roles: Roles = None
    namespace: Annotated[
        str,
        Meta(
            description="Whose schedules are the token's: by default its own. Tokens that name one share them.",
            extra_json_schema={"examples": ["token:billing"]},
        ),
    ] = ""
    expires_at: ExpiresAt = None
    messages_per_second: Annotated[
        float,
        Meta(
            description="How many single messages a second may be sent with it.",
            extra_json_schema={"minimum": SMALLEST_MESSAGE_RATE, "maximum": LARGEST_MESSAGE_RATE},
        ),
    ] = MESSAGES_PER_SECOND


class RotationBody(bodies.Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a token's secret is replaced. Its expiry stays, unless another one is given."""

    overlap_seconds: Annotated[
        int,
        Meta(
            description="For how long the secret before it is good too.",
            extra_json_schema={"minimum": 0, "maximum": MOST_OVERLAP_SECONDS},
        ),
    ] = 0
    expires_at: ExpiresAt = None


class TokenView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A token without its secret. `createdAt` is in nanoseconds since the epoch; `lastUsedAt` is known to the minute,
    and `null` where it was never used. The secret before the last rotation is good until `previousUntil`."""

    id: str
    name: str
    is_admin: bool
    allowed_apps: tuple[str, ...]
    created_by: str
    created_at: int
    roles: dict[str, Role]
    namespace: str
    expires_at: Timestamp | None
    last_used_at: Timestamp | None
    previous_until: Timestamp | None
    messages_per_second: float
    scope: Annotated[TokenScope, Meta(description="`bus`: it opens the bus alone; empty: all that its roles open.")]


class IssuedToken(TokenView, frozen=True, kw_only=True, rename="camel"):
    """A new token. `token` is its secret, to be sent as `Authorization: Bearer <token>`; it is never shown again."""

    token: str


class TokensResource(Resource):
    def __init__(self, store: Store, revocations: RevocationFlow, clock: Clock) -> None:
        self._store = store
        self._revocations = revocations
        self._clock = clock

    @Route(
        "GET", "/tokens", summary="List the tokens, the oldest first, without their secrets.",
        who=ADMIN, answers={HTTPStatus.OK: list[TokenView]}, paged=True,
    )  # fmt: skip
    async def list_tokens(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = paging.read_page(request, str)
        tokens = await self._store.tokens.page(after=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, tokens, lambda token: token.id)
        return bodies.answer([TokenView(**_fields(token)) for token in tokens], headers=headers)

    @Route(
        "POST", "/tokens", summary="Make a token; the answer holds its secret, for this one time.",
        act="token.create", who=ADMIN, body=TokenBody, answers={HTTPStatus.CREATED: IssuedToken},
    )  # fmt: skip
    async def create_token(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        body = bodies.read(await request.body(), TokenBody)
        check_token_name(body.name)
        if body.namespace:
            check_token_namespace(body.namespace)
        check_message_rate(body.messages_per_second)
        secret, now = fresh_secret(), self._clock.now_ns()
        token = Token(
            id=fresh_id(now),
            name=body.name,
            digest=secret_digest(secret),
            is_admin=body.is_admin,
            allowed_apps=read_apps(body.allowed_apps or ()),
            roles=read_roles(body.roles or {}),
            created_by=caller_of(request).name,
            created_at=now,
            namespace=body.namespace,
            expires_at=self._read_expiry(body.expires_at),
            messages_per_second=body.messages_per_second,
        )
        await self._store.tokens.add(token)
        note_change(None, TokenView(**_fields(token)))
        return bodies.answer(IssuedToken(**_fields(token), token=secret), HTTPStatus.CREATED)

    @Route(
        "POST", TOKEN + "/rotate",
        summary="Give a token another secret, which the answer holds for this one time; all else of it stays.",
        act="token.rotate", who=ADMIN, body=RotationBody, body_required=False, answers={HTTPStatus.OK: IssuedToken},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def rotate_token(self, request: Request[Any, Any, Any], token_id: FromPath[str]) -> Response[bytes]:
        content = await request.body()
        body = bodies.read(content, RotationBody) if content.strip() else RotationBody()
        if not 0 <= body.overlap_seconds <= MOST_OVERLAP_SECONDS:
            rule = f"overlapSeconds is an integer from 0 to {MOST_OVERLAP_SECONDS}"
            raise Invalid(rule, field="overlapSeconds", value=body.overlap_seconds)
        token, now = await self._require(token_id), self._clock.now()
        secret, digest = _another_secret(token)
        expires_at = self._read_expiry(body.expires_at) or token.expires_at
        if expires_at is not None and expires_at <= now:
            raise Conflict("this token has expired: give it another expiresAt", field="expiresAt")
        until = now + timedelta(seconds=body.overlap_seconds)
        rotated = await self._store.tokens.rotate(token, digest, previous_until=until, expires_at=expires_at)
        if rotated is None:
            raise Conflict("another request changed this token; read it and try again", field="tokenId", value=token_id)
        note_change(TokenView(**_fields(token)), TokenView(**_fields(rotated)))
        return bodies.answer(IssuedToken(**_fields(rotated), token=secret))

    @Route(
        "DELETE", TOKEN,
        summary="Revoke a token, and pause what it has scheduled: all of its namespace, unless others share that.",
        act="token.revoke", who=ADMIN, answers={HTTPStatus.NO_CONTENT: None}, problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def revoke_token(self, token_id: FromPath[str]) -> Response[None]:
        token = await self._require(token_id)
        await self._revocations.revoke_token(token)
        note_change(TokenView(**_fields(token)), None)
        return bodies.empty()

    async def _require(self, token_id: str) -> Token:
        token = await self._store.tokens.get(read_uuid(token_id, field="tokenId"))
        if token is None:
            raise NotFound("there is no token with this id", field="tokenId", value=token_id)
        note_name("token", token.name)
        return token

    def _read_expiry(self, text: str | None) -> datetime | None:
        if not text:
            return None
        expires_at = read_instant(text, field="expiresAt")
        if expires_at <= self._clock.now():
            raise Invalid("expiresAt must be later than now", field="expiresAt", value=text)
        return expires_at


def fresh_secret() -> str:
    """A random secret."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def fresh_bus_secret(name: str) -> str:
    """A random secret of the kind that Routemaster's clients take."""
    return make_bus_secret(name, secrets.token_bytes(RANDOM_BYTES))


def _another_secret(token: Token) -> tuple[str, str]:
    if token.scope is TokenScope.BUS:
        secret = fresh_bus_secret(token.name)
        return secret, bus_digest(secret)
    secret = fresh_secret()
    return secret, secret_digest(secret)


def _fields(token: Token) -> dict[str, Any]:
    instants = ("expires_at", "last_used_at", "previous_until")
    told = {name: getattr(token, name) for name in TokenView.__struct_fields__ if name not in instants}
    moments = {name: moment and format_instant(moment) for name in instants for moment in [getattr(token, name)]}
    return told | moments | {"namespace": token.owns}
