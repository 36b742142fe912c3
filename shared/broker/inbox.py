"""A consumer's messages wait here for iteration. Any number of tasks may iterate: each message goes to one of them, the
end to all. A publisher writes the time, by its own clock, into a header, so that the wait can be measured.
"""

import asyncio
import time
from typing import Any, Generic, TypeVar

from shared.domain.errors import Unavailable

PUBLISHED = "x-published-ms"


def published_now() -> int:
    return int(time.time() * 1000)


def wait_of(published: Any, *, redelivered: bool) -> float | None:
    """The seconds since publishing, at least 0 because clocks differ. `None` without the header, or for a repeated
    delivery."""
    if redelivered or not isinstance(published, int):
        return None
    return max(time.time() - published / 1000, 0.0)


T = TypeVar("T")


class Inbox(Generic[T]):
    """Messages in order, then an end: quiet (`StopAsyncIteration`) or with a reason (`Unavailable`)."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[T | None] = asyncio.Queue()
        self._reason: str | None = None
        self.ended = False

    def put(self, item: T) -> None:
        self._items.put_nowait(item)

    def end(self, reason: str | None = None) -> list[T]:
        """End the inbox; return the messages that were not iterated. A second call returns none."""
        if self.ended:
            return []
        self.ended, self._reason = True, reason
        left = [item for _ in range(self._items.qsize()) if (item := self._items.get_nowait()) is not None]
        self._items.put_nowait(None)
        return left

    async def take(self) -> T:
        """Return the next message. After the end, every call raises `StopAsyncIteration` or `Unavailable`."""
        item = await self._items.get()
        if item is not None:
            return item
        self._items.put_nowait(None)
        if self._reason is not None:
            raise Unavailable(self._reason)
        raise StopAsyncIteration
