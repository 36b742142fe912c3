"""Values read a moment ago, for all who ask meanwhile: however many look at a thing, it is read once at a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import inf
from typing import Generic, TypeVar

from cachetools import LRUCache

FRESH_SECONDS = 1.0
_REMEMBERED = 1_000

_T = TypeVar("_T")


class RecentLooks(Generic[_T]):
    """The last look at each of many things."""

    def __init__(self) -> None:
        self._looks: LRUCache[str, _LastLook[_T]] = LRUCache(_REMEMBERED)

    async def look(self, key: str, read: Callable[[], Awaitable[_T]], *, exact: bool = False) -> _T:
        """The value that `read` gives, or gave up to a second ago; `exact`: at a moment after this call."""
        asked_at = time.monotonic()
        last = self._looks.setdefault(key, _LastLook())
        async with last.lock:
            # A clock may stand still between two looks.
            is_old = last.read_at <= asked_at if exact else last.read_at < asked_at - FRESH_SECONDS
            if last.found is None or is_old:
                read_at = time.monotonic()
                last.found, last.read_at = await read(), read_at
                self._looks[key] = last
            return last.found


class _LastLook(Generic[_T]):
    """The last look at one thing."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.found: _T | None = None
        self.read_at = -inf
