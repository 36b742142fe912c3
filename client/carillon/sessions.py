"""`client.sessions`: the browsers in which the caller is signed in to the dashboard."""

from datetime import datetime

from msgspec import Struct

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


class Sessions(Resource[M]):
    """The caller's own. All methods raise `CarillonError`."""

    @call
    async def list(self) -> list[BrowserSession]:
        """List those that are not over, the newest first: at most 100."""
        return await self._get(list[BrowserSession], "sessions")

    @call
    async def end(self, session_id: str, *, reason: str = "") -> None:
        """Sign a browser out. Raises `NotFound`."""
        await self._delete("sessions", session_id, reason=reason)
