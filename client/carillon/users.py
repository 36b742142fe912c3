"""`client.users`: the people who may call. For admins only."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from carillon.calls import M, Resource, call, listing
from carillon.encoding import encode
from carillon.instants import UpdatedAt
from carillon.paging import PAGE_SIZE

Role = Literal["viewer", "operator", "admin"]


class User(Struct, frozen=True, kw_only=True, rename="camel"):
    """A person, and what they may do: they are the admin of `allowed_apps`, and have `roles` by what these hold over:
    `*`, `app/<id>` or `namespace/<namespace>`. A user who `is_admin` may do everything."""

    email: str
    is_admin: bool = False
    allowed_apps: Sequence[str] = ()
    roles: Mapping[str, Role] = {}

    def is_made_as(self, stored: "StoredUser") -> bool:
        """Whether this is what is stored."""
        same_rights = (stored.is_admin, stored.allowed_apps or (), stored.roles) == (
            self.is_admin,
            tuple(self.allowed_apps),
            self.roles,
        )
        return same_rights and stored.email.casefold() == self.email.casefold()


class StoredUser(UpdatedAt, frozen=True, kw_only=True, rename="camel"):
    """A user. A role that this client does not know is told as the server names it."""

    id: str
    email: str
    is_admin: bool
    allowed_apps: tuple[str, ...] | None
    roles: Mapping[str, str] = {}
    created_by: str


class Users(Resource[M]):
    """The users. All methods raise `CarillonError`, and `Forbidden` for who is no admin."""

    @call
    async def create(self, user: User, *, reason: str = "") -> StoredUser:
        """Let a person in. Raises `Invalid`, `Conflict` where there is one with this address."""
        return await self._create(
            StoredUser, list[StoredUser], "users", content=encode(user), reason=reason, is_wanted=user.is_made_as
        )

    @call
    async def get(self, user_id: str) -> StoredUser:
        """A user. Raises `NotFound`."""
        return await self._get(StoredUser, "users", user_id)

    @listing
    def list(self, *, limit: int | None = None, page_size: int = PAGE_SIZE) -> AsyncGenerator[StoredUser]:
        """All users, the oldest first; read page by page."""
        return self._list(list[StoredUser], "users", limit=limit, page_size=page_size)

    @call
    async def update(self, user_id: str, user: User, *, reason: str = "") -> StoredUser:
        """Give a user exactly these rights; their address stays what it is. Raises `NotFound`, `Invalid`."""
        return await self._put(StoredUser, "users", user_id, content=encode(user), reason=reason)

    @call
    async def delete(self, user_id: str, *, reason: str = "") -> None:
        """Delete a user and pause all that they have scheduled. Raises `NotFound`, `Conflict` for the first admin."""
        await self._delete("users", user_id, reason=reason)
