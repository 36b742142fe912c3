"""`/users`: the people who may call, for admins only; `/whoami`: the caller and the caller's rights; and `/sessions`:
the browsers in which the caller is signed in.
"""

from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct

from carillon.wire import console as wire
from services.api.http import bodies, paging
from services.api.http.acts import note_change, note_name
from services.api.http.bodies import Timestamp
from services.api.http.errors import fresh_id
from services.api.http.identity import caller_of, session_of
from services.api.http.rights import ADMIN, KNOWN
from services.api.http.routes import Resource, Route
from shared.accounts.rules.apps import Role, fold_email, read_roles
from shared.accounts.rules.callers import User, WebSession, check_email
from shared.clock.revocations import RevocationFlow
from shared.core.errors import Conflict, NotFound
from shared.core.ids import read_uuid
from shared.core.instants import format_instant
from shared.runtime.clock import Clock
from shared.runtime.settings import AuditSettings
from shared.store import Store

_REASONS = bodies.Checks({wire.Caller: {"reasons": bodies.OneOf(("optional", "required"))}})


class WhoamiResource(Resource):
    def __init__(self, settings: AuditSettings) -> None:
        self._reasons = settings.reasons

    @Route(
        "GET", "/whoami", summary="Show who the caller is, and what they may do.",
        who=KNOWN, answers={HTTPStatus.OK: wire.Caller}, limits=_REASONS,
    )  # fmt: skip
    async def get_caller(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        caller = caller_of(request)
        view = wire.Caller(
            namespace=caller.namespace,
            name=caller.name,
            is_admin=caller.is_admin,
            allowed_apps=tuple(sorted(caller.allowed_apps)),
            roles=dict(caller.roles),
            reasons=self._reasons,
        )
        return bodies.answer(view)


Email = Annotated[str, Meta(extra_json_schema={"format": "email", "minLength": 3, "maxLength": 254})]
AppId = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
AllowedApps = Annotated[
    tuple[AppId, ...] | None, Meta(description="The ids of the apps that may be used; all of them by an admin.")
]
Roles = Annotated[
    dict[str, str] | None,
    Meta(
        description="`viewer`, `operator` or `admin`, by what it holds over: `*`, `app/<id>`, `namespace/<namespace>`.",
        extra_json_schema={"additionalProperties": {"enum": [*Role]}, "examples": [{"*": "viewer"}]},
    ),
]
USERS = "/users"
USER = "/users/{user_id:str}"


class UserBody(bodies.Body, frozen=True, kw_only=True):
    """A user to be made or changed."""

    email: Email = ""
    is_admin: bool = False
    allowed_apps: AllowedApps = None
    roles: Roles = None


class UserView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A user. Times in nanoseconds since the epoch."""

    id: str
    email: str
    is_admin: bool
    allowed_apps: tuple[str, ...] | None
    created_by: str
    created_at: int
    updated_at: int
    roles: dict[str, Role]


def user_view(user: User) -> UserView:
    return UserView(
        id=user.id,
        email=user.email,
        is_admin=user.is_admin,
        allowed_apps=user.allowed_apps,
        created_by=user.created_by,
        created_at=user.created_at,
        updated_at=user.updated_at,
        roles=user.roles,
    )


def read_apps(app_ids: tuple[str, ...]) -> tuple[str, ...]:
    """The canonical ids of allowed apps. Raises `Invalid` for one that is no UUID."""
    return tuple(read_uuid(app_id, field=f"allowedApps[{index}]") for index, app_id in enumerate(app_ids))


class UsersResource(Resource):
    def __init__(self, store: Store, revocations: RevocationFlow, clock: Clock, *, first_admin: str) -> None:
        self._store = store
        self._revocations = revocations
        self._clock = clock
        self._first_admin = first_admin

    @Route(
        "GET", USERS, summary="List the users, the oldest first.",
        who=ADMIN, answers={HTTPStatus.OK: list[UserView]}, paged=True,
    )  # fmt: skip
    async def list_users(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = paging.read_page(request, str)
        users = await self._store.users.page(after=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, users, lambda user: user.id)
        return bodies.answer([user_view(user) for user in users], headers=headers)

    @Route(
        "POST", USERS, summary="Make a user.",
        act="user.create", who=ADMIN,
        body=UserBody, answers={HTTPStatus.CREATED: UserView}, problems=(HTTPStatus.CONFLICT,),
    )  # fmt: skip
    async def create_user(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        body = bodies.read(await request.body(), UserBody)
        check_email(body.email)
        now = self._clock.now_ns()
        user = User(
            id=fresh_id(now),
            email=body.email,
            is_admin=body.is_admin,
            allowed_apps=_allowed_apps(body),
            roles=read_roles(body.roles or {}),
            created_by=caller_of(request).name,
            created_at=now,
            updated_at=now,
        )
        await self._store.users.add(user)
        note_change(None, user_view(user))
        return bodies.answer(user_view(user), HTTPStatus.CREATED)

    @Route(
        "GET", USER, summary="Show a user.",
        who=ADMIN, answers={HTTPStatus.OK: UserView}, problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def get_user(self, user_id: FromPath[str]) -> Response[bytes]:
        user = await self._store.users.get(read_uuid(user_id, field="userId"))
        return bodies.answer(user_view(_require_user(user, user_id)))

    @Route(
        "PUT", USER, summary="Change what a user may do. The body holds a valid email, which is otherwise ignored.",
        act="user.update", who=ADMIN,
        body=UserBody, answers={HTTPStatus.OK: UserView}, problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def update_user(self, request: Request[Any, Any, Any], user_id: FromPath[str]) -> Response[bytes]:
        body = bodies.read(await request.body(), UserBody)
        check_email(body.email)
        earlier = _require_user(await self._store.users.get(read_uuid(user_id, field="userId")), user_id)
        user = await self._store.users.update(
            earlier.id,
            is_admin=body.is_admin,
            allowed_apps=_allowed_apps(body),
            roles=read_roles(body.roles or {}),
            at=self._clock.now_ns(),
        )
        changed = user_view(_require_user(user, user_id))
        note_change(user_view(earlier), changed)
        return bodies.answer(changed)

    @Route(
        "DELETE", USER, summary="Delete a user and pause all that they have scheduled.",
        act="user.delete", who=ADMIN,
        answers={HTTPStatus.NO_CONTENT: None}, problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def delete_user(self, user_id: FromPath[str]) -> Response[None]:
        user = _require_user(await self._store.users.get(read_uuid(user_id, field="userId")), user_id)
        if fold_email(user.email) == fold_email(self._first_admin):
            reason = (
                "api.first_admin names this user, whose next request would make them an admin again: "
                "change the setting first, or take their rights away by PUT"
            )
            raise Conflict(reason, field="userId", value=user_id)
        await self._revocations.delete_user(user)
        note_change(user_view(user), None)
        return bodies.empty()


def _allowed_apps(body: UserBody) -> tuple[str, ...] | None:
    return None if body.allowed_apps is None else read_apps(body.allowed_apps)


def _require_user(user: User | None, user_id: str) -> User:
    if user is None:
        raise NotFound("there is no user with this id", field="userId", value=user_id)
    note_name("user", user.email)
    return user


_MOST = 100
_ID = {"type": "string", "description": "The id of the session, as the list tells it."}


class SessionsResource(Resource):
    def __init__(self, store: Store, clock: Clock) -> None:
        self._sessions = store.sessions
        self._clock = clock

    @Route(
        "GET", "/sessions",
        summary=f"List the browsers in which the caller is signed in, the newest first: at most {_MOST}.",
        who=KNOWN, answers={HTTPStatus.OK: list[wire.BrowserSession[Timestamp]]},
    )  # fmt: skip
    async def list_sessions(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        found = await self._sessions.find_of(caller_of(request).namespace, limit=_MOST)
        now, own = self._clock.now(), session_of(request)
        return bodies.answer([_view(each, own) for each in found if not each.is_over(now)])

    @Route(
        "DELETE", "/sessions/{session_id:str}", summary="Sign a browser of the caller's out.",
        act="session.revoke", who=KNOWN, answers={HTTPStatus.NO_CONTENT: None}, problems=(HTTPStatus.NOT_FOUND,),
        segments={"session_id": _ID},
    )  # fmt: skip
    async def end_session(self, request: Request[Any, Any, Any], session_id: FromPath[str]) -> Response[None]:
        if not await self._sessions.remove(session_id, caller_of(request).namespace):
            raise NotFound("you have no session with this id", field="sessionId", value=session_id)
        return bodies.empty()


def _view(session: WebSession, own: str) -> wire.BrowserSession[str]:
    return wire.BrowserSession(
        id=session.id,
        began_at=format_instant(session.began_at),
        seen_at=format_instant(session.seen_at),
        ends_at=format_instant(session.ends_at),
        address=session.address,
        agent=session.agent,
        is_this=session.id == own,
    )
