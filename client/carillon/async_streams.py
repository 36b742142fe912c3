"""Streams of asyncio that hear early answers; see `early_answers`."""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import Any

import httpcore

from carillon.early_answers import LARGE_BYTES, READ_BYTES, Progress


class AsyncBackend(httpcore.AsyncNetworkBackend):
    """Connects over TCP."""

    def __init__(self) -> None:
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return AsyncStream(await self._backend.connect_tcp(host, port, timeout, local_address, socket_options))

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


class AsyncStream(httpcore.AsyncNetworkStream):
    """A task listens while large content is sent."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._progress = Progress()
        self._listening: asyncio.Task[None] | None = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        listening, self._listening = self._listening, None
        if listening is not None:
            await listening
        return self._progress.take_heard() or await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._progress.note_write(buffer):
            await self._hear(large=len(buffer) >= LARGE_BYTES)
        await self._stream.write(buffer, timeout)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return AsyncStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    async def aclose(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        await self._stream.aclose()

    async def _hear(self, *, large: bool) -> None:
        """Hear the server before content is sent. Raises `WriteError` where it has answered."""
        progress = self._progress
        if progress.must_wait():
            await self._listen(lambda: progress.allowed or progress.ended)
            if not progress.allowed:
                raise httpcore.WriteError("answered before the content was sent")
        if large and self._listening is None:
            self._listening = asyncio.create_task(self._listen(lambda: progress.ended))
        if self._listening is not None and self._listening.done():
            raise httpcore.WriteError("answered before the request was sent")

    async def _listen(self, enough: Callable[[], bool]) -> None:
        """Read until enough was said, or until the connection ends."""
        while not enough():
            part = await self._stream.read(READ_BYTES)
            if not part:
                return
            self._progress.heard += part
