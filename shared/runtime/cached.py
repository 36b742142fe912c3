"""Results that callers share for a moment, so that their cost does not grow with the number of callers."""

import time
from asyncio import Lock
from collections.abc import Awaitable, Callable, Hashable
from itertools import count
from math import inf
from typing import Generic, TypeVar, cast

from cachetools import LRUCache

from shared.domain.errors import Unavailable

T = TypeVar("T")


def is_unavailable(error: Exception) -> bool:
    """Whether a server is away; the error is then the same for every caller."""
    return isinstance(error, Unavailable)


class CachedByKey(Generic[T]):
    """Results by key, at most `seconds` old. A key names everything that its result depends on.

    Callers that come during a read wait for it and share the next one, and its error if `shares` says so. After another
    error, each caller reads again. No caller may change a result.
    """

    def __init__(
        self,
        *,
        seconds: float = 1.0,
        most: int = 1_000,
        shares: Callable[[Exception], bool] = is_unavailable,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._shares = shares
        self._monotonic = monotonic
        self._turns = count()
        self._kept: LRUCache[Hashable, _Kept[T]] = LRUCache(most)

    async def get(self, key: Hashable, read: Callable[[], Awaitable[T]], *, seconds: float | None = None) -> T:
        """Return a result of `read`, at most `seconds` old. With 0 its read began after this call."""
        seconds = self._seconds if seconds is None else seconds
        asked, kept = next(self._turns), self._kept.setdefault(key, _Kept())
        if self._is_fresh(kept, seconds):
            return cast(T, kept.value)
        async with kept.lock:
            if not self._is_fresh(kept, seconds) and kept.turn < asked:
                await self._read(kept, read)
            if kept.error is not None:
                raise kept.error.with_traceback(None)
            return cast(T, kept.value)

    async def _read(self, kept: "_Kept[T]", read: Callable[[], Awaitable[T]]) -> None:
        turn, began_at = next(self._turns), self._monotonic()
        try:
            kept.value, kept.error, kept.began_at = await read(), None, began_at
        except Exception as error:
            if not self._shares(error):
                raise
            kept.error, kept.began_at = error, -inf
        kept.turn = turn

    def _is_fresh(self, kept: "_Kept[T]", seconds: float) -> bool:
        return self._monotonic() - kept.began_at < seconds


class _Kept(Generic[T]):
    def __init__(self) -> None:
        self.lock = Lock()
        self.turn = -1
        self.began_at = -inf
        self.value: T | None = None
        self.error: Exception | None = None


class Cached(Generic[T]):
    """The result of `read`, at most `seconds` old."""

    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        *,
        seconds: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._kept = CachedByKey[T](seconds=seconds, most=1, monotonic=monotonic)

    async def get(self) -> T:
        return await self._kept.get("", self._read)
