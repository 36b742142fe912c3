"""Whose sessions have a page open that asks for itself: all of them are looked up together, every two seconds."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from cachetools import TTLCache

from services.api.http.pages.shared_reads import SharedReads

STALE_SECONDS = 2.0
"""How long a page may go on to ask for itself when its session has ended."""

_MOST, _OPEN_SECONDS = 2_000, 30.0

Found = TypeVar("Found")


class OpenSessions(Generic[Found]):
    """Looks up the sessions of all open pages by one `find`, every two seconds. `find` returns those that are still
    good, by id, and raises `Unavailable`."""

    def __init__(
        self, find: Callable[[Sequence[str]], Awaitable[Mapping[str, Found]]], reads: SharedReads | None = None
    ) -> None:
        self._find = find
        self._reads = reads or SharedReads()
        self._open: TTLCache[str, None] = TTLCache(_MOST, _OPEN_SECONDS)

    async def get(self, session_id: str) -> Found | None:
        """What there is of this session, or was in the last two seconds. Raises `Unavailable`."""
        found: Mapping[str, Found] = await self._reads.get("all", self._find_open, seconds=STALE_SECONDS)
        if session_id not in found:
            found = await self._find([session_id])
        if session_id in found:
            self._open[session_id] = None
        return found.get(session_id)

    async def _find_open(self) -> Mapping[str, Found]:
        return await self._find(sorted(self._open)) if self._open else {}
