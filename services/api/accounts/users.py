"""`/users`: the people who may call. For admins only."""

from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from msgspec import Meta, Struct

from services.api.http import paging, wire
from services.api.http.identity import Who, caller_of
from services.api.http.ids import fresh_id
from services.api.http.routes import endpoint
from shared.domain.accounts.callers import User, check_email
from shared.domain.errors import Conflict, NotFound
from shared.domain.ids import read_uuid
from shared.flow.clock.revocations import RevocationFlow
from shared.runtime.clock import Clock
from shared.store import Store

Email = Annotated[str, Meta(extra_json_schema={"format": "email", "minLength": 3, "maxLength": 254})]
AppId = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
AllowedApps = Annotated[
    tuple[AppId, ...] | None, Meta(description="The ids of the apps that may be used; all of them by an admin.")
]


class UserBody(wire.Body, frozen=True, kw_only=True):
    """A user to be made or changed."""

    email: Email = ""
    is_admin: bool = False
    allowed_apps: AllowedApps = None


class UserView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A user. Times in nanoseconds since the epoch."""

    id: str
    email: str
    is_admin: bool
    allowed_apps: tuple[str, ...] | None
    created_by: str
    created_at: int
    updated_at: int


def user_view(user: User) -> UserView:
    """A user as clients see it."""
    return UserView(
        id=user.id,
        email=user.email,
        is_admin=user.is_admin,
        allowed_apps=user.allowed_apps,
        created_by=user.created_by,
        created_at=user.created_at,
        updated_at=user.updated_at,
    )


def read_apps(app_ids: tuple[str, ...]) -> tuple[str, ...]:
    """The canonical ids of allowed apps. Raises `Invalid` for one that is no UUID."""
    return tuple(read_uuid(app_id, field=f"allowedApps[{index}]") for index, app_id in enumerate(app_ids))


class UsersResource:
    """The routes of users."""

    def __init__(self, store: Store, revocations: RevocationFlow, clock: Clock, *, first_admin: str) -> None:
        self._store = store
        self._revocations = revocations
        self._clock = clock
        self._first_admin = first_admin

    def handlers(self) -> list[HTTPRouteHandler]:
        """All of them."""
        ok, created, gone = HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT
        missing, taken = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
        one, who = "/users/{user_id:str}", Who.ADMIN
        return [
            endpoint("GET", "/users", self.index, who=who, answers={ok: list[UserView]}, paged=True),
            endpoint(
                "POST", "/users", self.add, who=who, body=UserBody, answers={created: UserView}, problems=(taken,)
            ),
            endpoint("GET", one, self.show, who=who, answers={ok: UserView}, problems=(missing,)),
            endpoint("PUT", one, self.update, who=who, body=UserBody, answers={ok: UserView}, problems=(missing,)),
            endpoint("DELETE", one, self.remove, who=who, answers={gone: None}, problems=(missing, taken)),
        ]

    async def index(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        """List the users, the oldest first."""
        asked = paging.asked(request, str)
        users = await self._store.users.page(after=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, users, lambda user: user.id)
        return wire.answer([user_view(user) for user in users], headers=headers)

    async def add(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        """Make a user."""
        body = wire.read(await request.body(), UserBody)
        check_email(body.email)
        now = self._clock.now_ns()
        user = User(
            id=fresh_id(now),
            email=body.email,
            is_admin=body.is_admin,
            allowed_apps=_allowed(body),
            created_by=caller_of(request).name,
            created_at=now,
            updated_at=now,
        )
        await self._store.users.add(user)
        return wire.answer(user_view(user), HTTPStatus.CREATED)

    async def show(self, user_id: FromPath[str]) -> Response[bytes]:
        """Show a user."""
        user = await self._store.users.get(read_uuid(user_id, field="userId"))
        return wire.answer(user_view(_found(user, user_id)))

    async def update(self, request: Request[Any, Any, Any], user_id: FromPath[str]) -> Response[bytes]:
        """Change what a user may do. The body holds a valid email, which is otherwise ignored."""
        body = wire.read(await request.body(), UserBody)
        check_email(body.email)
        user = await self._store.users.update(
            read_uuid(user_id, field="userId"),
            is_admin=body.is_admin,
            allowed_apps=_allowed(body),
            at=self._clock.now_ns(),
        )
        return wire.answer(user_view(_found(user, user_id)))

    async def remove(self, user_id: FromPath[str]) -> Response[None]:
        """Delete a user and pause all that they have scheduled."""
        user = _found(await self._store.users.get(read_uuid(user_id, field="userId")), user_id)
        if user.email == self._first_admin:
            reason = (
                "api.first_admin names this user, whose next request would make them an admin again: "
                "change the setting first, or take their rights away by PUT"
            )
            raise Conflict(reason, field="userId", value=user_id)
        await self._revocations.delete_user(user)
        return wire.nothing()


def _allowed(body: UserBody) -> tuple[str, ...] | None:
    return None if body.allowed_apps is None else read_apps(body.allowed_apps)


def _found(user: User | None, user_id: str) -> User:
    if user is None:
        raise _missing(user_id)
    return user


def _missing(user_id: str) -> NotFound:
    return NotFound("there is no user with this id", field="userId", value=user_id)
