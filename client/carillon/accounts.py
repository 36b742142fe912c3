"""The callers and the apps that jobs send for: `client.apps`, `client.users`, `client.tokens`, `client.sessions`."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from carillon.calls import PAGE_SIZE, M, Resource, call, listing
from carillon.values import CreatedAt, UpdatedAt, encode, in_utc
from carillon.wire.console import BrowserSession


class App(UpdatedAt, frozen=True, kw_only=True, rename="camel"):
    """An app. Its name says whose devices its jobs reach; name and bundle id are unique. The API sets the other
    fields."""

    id: str = ""
    name: str
    bundle_id: str
    created_by: str = ""


class Device(Struct, frozen=True, kw_only=True, rename="camel"):
    """A device of a push table. Pushes skip one without a `token`."""

    service: str
    seq_id: int
    token: str
    locale: str
    tz: str


class Apps(Resource[M]):
    """The apps. All methods raise `CarillonError`."""

    @call
    async def create(self, name: str | App, bundle_id: str = "", *, reason: str = "") -> App:
        """Create an app, as an admin: an `App`, or its name and bundle id. Raises `Invalid`, and `Conflict` if an app
        has this name or bundle id."""
        wanted = name if isinstance(name, App) else App(name=name, bundle_id=bundle_id)
        content = encode({"name": wanted.name, "bundleId": wanted.bundle_id})

        def is_wanted(app: App) -> bool:
            return (app.name, app.bundle_id) == (wanted.name, wanted.bundle_id)

        return await self._create(App, list[App], "apps", content=content, reason=reason, is_wanted=is_wanted)

    @call
    async def get(self, app_id: str) -> App:
        """An app. Raises `NotFound`."""
        return await self._get(App, "apps", app_id)

    @listing
    def list(self, *, limit: int | None = None, page_size: int = PAGE_SIZE) -> AsyncGenerator[App]:
        """All apps, the oldest first; read page by page."""
        return self._list(list[App], "apps", limit=limit, page_size=page_size)

    @call
    async def update(self, app_id: str, *, name: str, bundle_id: str, reason: str = "") -> App:
        """Change an app's bundle id and, as an admin, its name. Raises `NotFound`, `Invalid`, `Conflict`."""
        content = encode({"name": name, "bundleId": bundle_id})
        return await self._put(App, "apps", app_id, content=content, reason=reason)

    @call
    async def find_devices(self, app_id: str, user: str) -> tuple[Device, ...]:
        """The devices of one user, as an operator. Raises `NotFound`, `Conflict` if a push table has no index on
        `user_id`, or more devices of the user than are shown."""
        return await self._get(tuple[Device, ...], "apps", app_id, "devices", query={"user": user})

    @call
    async def delete(self, app_id: str, *, reason: str = "") -> None:
        """Delete an app with its templates, credentials and jobs; where there is much, the server goes on with it after
        its answer, and the app is there until then. Raises `NotFound`, `Conflict` where a job is unfinished."""
        await self._delete("apps", app_id, reason=reason)


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
    """The users. All methods raise `CarillonError`, and `Forbidden` unless the caller is an admin."""

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
    before the last rotation is good until `previous_until`. One with the `scope` `bus` opens the bus alone."""

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
    """The tokens. All methods raise `CarillonError`, and `Forbidden` unless the caller is an admin.

    To make or rotate one is not attempted again once an attempt may have reached the server: `Unavailable` then means
    that a secret may exist that was never shown. `list` shows its token; `revoke` or another `rotate` ends it.
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


class Sessions(Resource[M]):
    """The caller's own. All methods raise `CarillonError`."""

    @call
    async def list(self) -> list[BrowserSession[datetime]]:
        """List those that are not over, the newest first: at most 100."""
        return await self._get(list[BrowserSession[datetime]], "sessions")

    @call
    async def end(self, session_id: str, *, reason: str = "") -> None:
        """Sign a browser out. Raises `NotFound`."""
        await self._delete("sessions", session_id, reason=reason)
