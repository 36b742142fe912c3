"""Connections that are opened at their first use: most processes never use them, and their driver is large."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from shared.domain.errors import Unavailable


class Connected(Protocol):
    async def close(self) -> None: ...


AnyConnected = TypeVar("AnyConnected", bound=Connected)


class Late(Generic[AnyConnected]):
    """Holds a connection that is opened once. `load` imports the driver in a thread, so that the event loop goes on,
    and returns the function that opens the connection, which runs in the loop.

    The first caller gets an error of opening, so settings are better checked before.
    """

    def __init__(self, name: str, load: Callable[[], Callable[[], AnyConnected]]) -> None:
        self._name = name
        self._load = load
        self._opened: AnyConnected | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def get(self) -> AnyConnected:
        """Return the open connection. Raises `Unavailable` after `close`."""
        if self._opened is None or self._closed:
            async with self._opening:
                if self._closed:
                    raise Unavailable(f"{self._name} is closed")
                if self._opened is None:
                    self._opened = (await asyncio.to_thread(self._load))()
        return self._opened

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            if self._opened is not None:
                await self._opened.close()
