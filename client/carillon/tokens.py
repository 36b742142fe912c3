"""`client.tokens`: the credentials of services. For admins only."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import force_setattr

from carillon.calls import M, Resource, call, listing
from carillon.encoding import encode
from carillon.instants import CreatedAt, in_utc
from carillon.paging import PAGE_SIZE
from carillon.users import Role


class Token(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A service that gets a token, and what it may do: as a `User`. `namespace` owns what is scheduled by it: by
    default its own, and tokens that name one share it. It ends at `expires_at`; by default never.

    Raises:
        ValueError: `expires_at` has no time zone.
    """

    name: str
    is_admin: bool = False
    allowed_apps: Sequence[str] = ()
    roles: Mapping[str, Role] = {}
    namespace: str = ""
    expires_at: datetime | None = None
    messages_per_second: float = 10.0

    def __post_init__(self) -> None:
        if self.expires_at is not None:
            force_setattr(self, "expires_at", in_utc(self.expires_at, "expires_at"))


class StoredToken(CreatedAt, frozen=True, kw_only=True, rename="camel"):
    """A token without its secret. `last_used_at` is known to the minute, `None` where it was never used. The secret
    before the last rotation is good until `previous_until`. One with the `scope` `bus` opens the bus alone. Servers of
    0.1 tell none of these, no namespace and no `roles`."""

    id: str
    name: str
    is_admin: bool
    allowed_apps: tuple[str, ...]
    roles: Mapping[str, str] = {}
    created_by: str
    namespace: str = ""
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    previous_until: datetime | None = None
    messages_per_second: float = 10.0
    scope: str = ""


class IssuedToken(StoredToken, frozen=True, kw_only=True, rename="camel"):
    """A new token. `token` is its secret, which is never shown again."""

    token: str

    def __repr__(self) -> str:
        """Without the secret: this ends in logs."""
        return f"IssuedToken(id={self.id!r}, name={self.name!r})"


class Tokens(Resource[M]):
    """The tokens. All methods raise `CarillonError`, and `Forbidden` for who is no admin.

    To make or rotate one is not attempted again once an attempt may have reached the server: `Unavailable` then means
    that there may be a secret which nobody knows. `list` shows its token; `revoke` or another `rotate` ends it.
    """

    @call
    async def create(self, token: Token, *, reason: str = "") -> IssuedToken:
        """Make a token. Raises `Invalid`."""
        return await self._post(IssuedToken, "tokens", content=encode(token), reason=reason, once=True)

    @listing
    def list(self, *, limit: int | None = None, page_size: int = PAGE_SIZE) -> AsyncGenerator[StoredToken]:
        """All tokens, the oldest first, without their secrets; read page by page."""
        return self._list(list[StoredToken], "tokens", limit=limit, page_size=page_size)

    @call
    async def rotate(
        self, token_id: str, *, overlap_seconds: int, expires_at: datetime | None = None, reason: str = ""
    ) -> IssuedToken:
        """Give a token another secret; the one before stays good for `overlap_seconds`. All else stays, but for
        `expires_at`, if it is given. Raises `NotFound`, `Conflict` where the token has expired."""
        end = expires_at and in_utc(expires_at, "expires_at")
        body = {"overlapSeconds": overlap_seconds, **({"expiresAt": end} if end else {})}
        content = encode(body)
        return await self._post(IssuedToken, "tokens", token_id, "rotate", content=content, reason=reason, once=True)

    @call
    async def revoke(self, token_id: str, *, reason: str = "") -> None:
        """End a token and pause all that it has scheduled. Raises `NotFound`."""
        await self._delete("tokens", token_id, reason=reason)
