"""`client.tokens`: the credentials of services. For admins only."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus

import msgspec
from msgspec import Struct

from carillon.addresses import path_of
from carillon.calls import M, Resource, call, listing
from carillon.instants import CreatedAt
from carillon.paging import PAGE_SIZE, items
from carillon.users import Role

_EVERY = "/tokens"
_GONE = frozenset({int(HTTPStatus.NOT_FOUND)})


class Token(Struct, frozen=True, kw_only=True, rename="camel"):
    """A service that gets a token, and what it may do: as a `User`."""

    name: str
    is_admin: bool = False
    allowed_apps: Sequence[str] = ()
    roles: Mapping[str, Role] = {}


class StoredToken(CreatedAt, frozen=True, kw_only=True, rename="camel"):
    """A token without its secret. `namespace` owns what is scheduled by it; a token that was rotated has that of the
    one before. `last_used_at` is exact to some minutes. Servers before 0.2 tell none of these and no `roles`."""

    id: str
    name: str
    is_admin: bool
    allowed_apps: tuple[str, ...]
    roles: Mapping[str, str] = {}
    created_by: str
    namespace: str = ""
    expires_at: datetime | None = None
    last_used_at: datetime | None = None


class IssuedToken(StoredToken, frozen=True, kw_only=True, rename="camel"):
    """A new token. `token` is its secret, which is never shown again."""

    token: str

    def __repr__(self) -> str:
        """Without the secret: this ends in logs."""
        return f"IssuedToken(id={self.id!r}, name={self.name!r})"


_issued = msgspec.json.Decoder(IssuedToken)
_page = msgspec.json.Decoder(list[StoredToken])


class Tokens(Resource[M]):
    """The tokens. All methods raise `CarillonError`, and `Forbidden` for who is no admin.

    To make or rotate one is attempted until an attempt may have reached the server, and not again: `Unavailable` then
    means that there may be a token which nobody knows. `list` shows it; `revoke` ends it.
    """

    @call
    async def create(self, token: Token, *, reason: str = "") -> IssuedToken:
        """Make a token. Raises `Invalid`."""
        content = msgspec.json.encode(token)
        return (await self._transport.call("POST", _EVERY, content=content, reason=reason, once=True)).read(_issued)

    @listing
    def list(self, *, limit: int | None = None, page_size: int = PAGE_SIZE) -> AsyncGenerator[StoredToken]:
        """All tokens, the oldest first, without their secrets; read page by page."""
        return items(self._transport, _EVERY, {}, _page, limit=limit, page_size=page_size)

    @call
    async def rotate(self, token_id: str, *, overlap_seconds: int = 86_400, reason: str = "") -> IssuedToken:
        """Give a service another token in the same namespace; the one before ends after `overlap_seconds`. Raises
        `NotFound`, `Conflict`."""
        path, content = f"{_one(token_id)}/rotate", msgspec.json.encode({"overlapSeconds": overlap_seconds})
        return (await self._transport.call("POST", path, content=content, reason=reason, once=True)).read(_issued)

    @call
    async def revoke(self, token_id: str, *, reason: str = "") -> None:
        """End a token and pause all that it has scheduled. Raises `NotFound`."""
        await self._transport.call("DELETE", _one(token_id), reason=reason, done_before=_GONE)


def _one(token_id: str) -> str:
    return _EVERY + path_of(token_id)
