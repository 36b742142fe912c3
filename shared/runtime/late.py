"""What is opened with its first use, because most processes never use it and its driver is large."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from shared.domain.errors import Unavailable


class Connected(Protocol):
    """Something that holds connections."""

    async def close(self) -> None:
        """End them."""


AnyConnected = TypeVar("AnyConnected", bound=Connected)


class Late(Generic[AnyConnected]):
    """Holds what is opened once. `load` imports what is needed, in a thread, so that the event loop goes on meanwhile;
    it returns what opens it, which is called in the loop.

    What opening refuses is told to whoever asks first, so settings are better checked before.
    """

    def __init__(self, name: str, load: Callable[[], Callable[[], AnyConnected]]) -> None:
        self._name = name
        self._load = load
        self._opened: AnyConnected | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def get(self) -> AnyConnected:
        """What is open by now. Raises `Unavailable` after `close`."""
        if self._opened is None or self._closed:
            async with self._opening:
                if self._closed:
                    raise Unavailable(f"{self._name} is closed")
                if self._opened is None:
                    self._opened = (await asyncio.to_thread(self._load))()
        return self._opened

    async def close(self) -> None:
        """Close it if it is open; it stays closed."""
        async with self._opening:
            self._closed = True
            if self._opened is not None:
                await self._opened.close()
