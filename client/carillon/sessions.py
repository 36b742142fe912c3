"""`client.sessions`: the browsers in which the caller is signed in to the dashboard."""

from datetime import datetime
from http import HTTPStatus

import msgspec
from msgspec import Struct

from carillon.addresses import path_of
from carillon.calls import M, Resource, call


class BrowserSession(Struct, frozen=True, kw_only=True, rename="camel"):
    """A browser that is signed in, from `address`. When it was used last is known to the minute."""

    id: str
    began_at: datetime
    seen_at: datetime
    ends_at: datetime
    address: str
    agent: str
    is_this: bool


_GONE = frozenset({int(HTTPStatus.NOT_FOUND)})
_sessions = msgspec.json.Decoder(list[BrowserSession])


class Sessions(Resource[M]):
    """The caller's own. All methods raise `CarillonError`."""

    @call
    async def list(self) -> list[BrowserSession]:
        """List those that are not over, the newest first: at most 100."""
        return (await self._transport.call("GET", "/sessions")).read(_sessions)

    @call
    async def end(self, session_id: str, *, reason: str = "") -> None:
        """Sign a browser out. Raises `NotFound`."""
        await self._transport.call("DELETE", path_of("sessions", session_id), reason=reason, done_before=_GONE)
