"""One reading for all who ask within a while: however many look, what is behind it is asked once."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedReading(Generic[T]):
    """A result of `read`, at most `seconds` old. A caller that comes while it is read waits for it; one that comes
    behind a failure asks again."""

    def __init__(
        self, read: Callable[[], Awaitable[T]], *, seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._seconds = seconds
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._kept: tuple[float, T] | None = None

    async def get(self) -> T:
        """The reading. Raises what `read` raises."""
        async with self._lock:
            if self._kept is None or self._monotonic() - self._kept[0] >= self._seconds:
                self._kept = self._monotonic(), await self._read()
            return self._kept[1]
