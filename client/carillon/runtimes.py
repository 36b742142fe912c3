"""The differences between asyncio and threads: how one waits, and the kind of connections."""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import BinaryIO, Protocol

import httpx

KEPT_SECONDS = 15.0
"""How long an idle connection is kept."""

OnEvent = Callable[[str], None]


class Limit(Protocol):
    """The time that an attempt has."""

    def restart(self) -> None:
        """Count from now."""


class Signal(Protocol):
    """Something that others wait for."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    async def wait(self) -> object: ...


class Pool(Protocol):
    """Connections for one exchange at a time."""

    async def exchange(self, request: httpx.Request, on_event: OnEvent, limit: Limit) -> httpx.Response:
        """The whole answer; `on_event` hears what httpcore tells meanwhile.

        Raises as httpcore does, `OSError`, or `CarillonError` for an answer that is too long.
        """
        ...

    async def close(self) -> None: ...


class Runtime(Protocol):
    """How a client waits. In a blocking one no coroutine ever suspends."""

    blocking: bool

    def slots(self, count: int) -> AbstractAsyncContextManager[object]:
        """Places for so many at once; others wait."""
        ...

    def signal(self) -> Signal:
        """A signal that is not set."""
        ...

    def limit(self, seconds: float) -> AbstractAsyncContextManager[Limit]:
        """`TimeoutError` for what takes longer inside."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def read(self, file: BinaryIO, size: int) -> bytes: ...

    async def write(self, file: BinaryIO, content: bytes | bytearray) -> None: ...

    def open_pool(self, trust: ssl.SSLContext | None) -> Pool: ...

    def content(self, parts: AsyncGenerator[bytes]) -> AsyncIterator[bytes] | Iterator[bytes]:
        """The parts, as this pool reads them."""
        ...
