"""Readings that all readers of a page share, so their cost does not grow with the number of open pages.

Only refreshes take a shared reading. A reader who opens a page gets a new one: they may have just changed something.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from http import HTTPStatus
from itertools import count
from typing import Any, Generic, TypeVar

from cachetools import LRUCache, TTLCache

from services.api.http.pages.inner import ApiProblem
from shared.domain.errors import Unavailable

SHARED_READS = "shared_reads"
"""The key in the application's state of what its pages have read."""

_REMEMBERED = 300

STALE_SECONDS = 2.0
"""How long a page may go on refreshing after its session has ended."""

_MOST, _OPEN_SECONDS = 2_000, 30.0

Found = TypeVar("Found")


class SharedReads:
    """Readings by their keys. A key names all that the reading depends on: what is asked, and what of its reader."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._turns = count()
        self._kept: LRUCache[Hashable, _Kept] = LRUCache(_REMEMBERED)

    async def get(self, key: Hashable, read: Callable[[], Awaitable[Any]], *, seconds: float) -> Any:
        """A value of `read`, at most `seconds` old; 0 reads a new one. Callers that come during a reading wait for it
        and share the next one, and its error too. Nobody may change the value. Raises what `read` raises."""
        asked, kept = next(self._turns), self._kept.setdefault(key, _Kept())
        if self._is_fresh(kept, seconds):
            return kept.value
        async with kept.lock:
            # One that began after we had asked is as new as our own would be.
            if not self._is_fresh(kept, seconds) and kept.turn < asked:
                await self._read(kept, read)
            if kept.problem is not None:
                raise kept.problem.with_traceback(None)
            return kept.value

    async def _read(self, kept: "_Kept", read: Callable[[], Awaitable[Any]]) -> None:
        turn, began_at = next(self._turns), self._monotonic()
        try:
            kept.value, kept.problem, kept.began_at = await read(), None, began_at
        except (ApiProblem, Unavailable) as problem:
            if isinstance(problem, ApiProblem) and problem.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise  # it is about who asks
            kept.problem, kept.began_at = problem, float("-inf")
        kept.turn = turn

    def _is_fresh(self, kept: "_Kept", seconds: float) -> bool:
        return self._monotonic() - kept.began_at < seconds


class _Kept:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.turn = -1
        self.began_at = float("-inf")
        self.value: Any = None
        self.problem: ApiProblem | Unavailable | None = None


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
        """This session, at most two seconds old. Raises `Unavailable`."""
        found: Mapping[str, Found] = await self._reads.get("all", self._find_open, seconds=STALE_SECONDS)
        if session_id not in found:
            found = await self._find([session_id])
        if session_id in found:
            self._open[session_id] = None
        return found.get(session_id)

    async def _find_open(self) -> Mapping[str, Found]:
        return await self._find(sorted(self._open)) if self._open else {}
