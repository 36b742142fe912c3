"""`/sessions`: the browsers in which the caller is signed in to the dashboard."""

from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.http import wire
from services.api.http.identity import caller_of, session_of
from services.api.http.rights import KNOWN
from services.api.http.routes import Resource, Route
from services.api.http.wire import Timestamp
from shared.domain.accounts.sessions import WebSession
from shared.domain.errors import NotFound
from shared.domain.instants import format_instant
from shared.runtime.clock import Clock
from shared.store import Store

_MOST = 100
_ID = {"type": "string", "description": "The id of the session, as the list tells it."}


class SessionView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A browser that is signed in. When it was used last is known to the minute. It ends at `endsAt`, after an hour
    without use, or with its token. `isThis` tells that the request came from it, by a page."""

    id: str
    began_at: Timestamp
    seen_at: Timestamp
    ends_at: Timestamp
    address: str
    agent: str
    is_this: bool


class SessionsResource(Resource):
    """The routes of sessions."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._sessions = store.sessions
        self._clock = clock

    @Route(
        "GET", "/sessions",
        summary=f"List the browsers in which the caller is signed in, the newest first: at most {_MOST}.",
        who=KNOWN, answers={HTTPStatus.OK: list[SessionView]},
    )  # fmt: skip
    async def list_sessions(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        found = await self._sessions.find_of(caller_of(request).namespace, limit=_MOST)
        now, own = self._clock.now(), session_of(request)
        return wire.answer([_view(each, own) for each in found if not each.is_over(now)])

    @Route(
        "DELETE", "/sessions/{session_id:str}", summary="Sign a browser of the caller's out.",
        act="session.revoke", who=KNOWN, answers={HTTPStatus.NO_CONTENT: None}, problems=(HTTPStatus.NOT_FOUND,),
        segments={"session_id": _ID},
    )  # fmt: skip
    async def end_session(self, request: Request[Any, Any, Any], session_id: FromPath[str]) -> Response[None]:
        if not await self._sessions.remove(session_id, caller_of(request).namespace):
            raise NotFound("you have no session with this id", field="sessionId", value=session_id)
        return wire.empty()


def _view(session: WebSession, own: str) -> SessionView:
    return SessionView(
        id=session.id,
        began_at=format_instant(session.began_at),
        seen_at=format_instant(session.seen_at),
        ends_at=format_instant(session.ends_at),
        address=session.address,
        agent=session.agent,
        is_this=session.id == own,
    )
