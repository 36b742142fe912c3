"""Waiting on an event loop of asyncio, and streams whose server may answer early."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, BinaryIO, Self

import httpcore
import httpx

from carillon.connections import KEPT_SECONDS, LARGE_BYTES, READ_BYTES, AnswerBody, Limit, OnEvent, Progress, message_of


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


class AsyncRuntime:
    """A call suspends while it waits, and other tasks go on."""

    blocking = False

    def slots(self, count: int) -> AbstractAsyncContextManager[object]:
        return asyncio.Semaphore(count)

    def signal(self) -> asyncio.Event:
        return asyncio.Event()

    def limit(self, seconds: float) -> AbstractAsyncContextManager[Limit]:
        return _Timeout(seconds)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def read(self, file: BinaryIO, size: int) -> bytes:
        return await asyncio.to_thread(file.read, size)

    async def write(self, file: BinaryIO, content: bytes | bytearray) -> None:
        await asyncio.to_thread(file.write, content)

    def open_pool(self, trust: ssl.SSLContext | None) -> "AsyncPool":
        return AsyncPool(trust)

    def content(self, parts: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
        return parts


class AsyncPool:
    """Connections whose streams are asyncio's."""

    def __init__(self, trust: ssl.SSLContext | None) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trust, keepalive_expiry=KEPT_SECONDS, network_backend=AsyncBackend()
        )

    async def exchange(self, request: httpx.Request, on_event: OnEvent, limit: Limit) -> httpx.Response:
        async def note(event: str, _: Mapping[str, Any]) -> None:
            on_event(event)

        answer = await self._pool.handle_async_request(message_of(request, note))
        try:
            body = AnswerBody(answer.status, answer.headers)
            async for part in answer.aiter_stream():
                body.add(part)
            return body.response()
        finally:
            await answer.aclose()

    async def close(self) -> None:
        await self._pool.aclose()


class _Timeout:
    """`asyncio.timeout` that can count anew."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(seconds)

    def restart(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, error, traceback)
