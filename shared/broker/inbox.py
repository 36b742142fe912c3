"""A consumer's messages wait here until somebody iterates over them, and their end is told here.

Any number of tasks may iterate over one inbox; each message goes to one of them, the end to all.
"""

import asyncio
from typing import Generic, TypeVar

from shared.domain.errors import Unavailable

T = TypeVar("T")


class Inbox(Generic[T]):
    """Messages in order, then one end: quiet (`StopAsyncIteration`) or with a reason (`Unavailable`)."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[T | None] = asyncio.Queue()
        self._reason: str | None = None
        self.ended = False

    def put(self, item: T) -> None:
        self._items.put_nowait(item)

    def end(self, reason: str | None = None) -> list[T]:
        """End it, unless it has ended, and return what nobody has iterated over."""
        if self.ended:
            return []
        self.ended, self._reason = True, reason
        left = [item for item in self._drain() if item is not None]
        self._items.put_nowait(None)
        return left

    async def take(self) -> T:
        """The next message. Raises `StopAsyncIteration` or `Unavailable` at the end, again and again."""
        item = await self._items.get()
        if item is not None:
            return item
        self._items.put_nowait(None)
        if self._reason is not None:
            raise Unavailable(self._reason)
        raise StopAsyncIteration

    def _drain(self) -> list[T | None]:
        return [self._items.get_nowait() for _ in range(self._items.qsize())]
