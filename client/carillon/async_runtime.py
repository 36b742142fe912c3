"""Waiting on an event loop of asyncio."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, BinaryIO, Self

import httpcore
import httpx

from carillon.async_streams import AsyncBackend
from carillon.bodies import AnswerBody
from carillon.connections import message_of
from carillon.runtimes import KEPT_SECONDS, Limit, OnEvent


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
