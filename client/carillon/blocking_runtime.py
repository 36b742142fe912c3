"""Waiting in a thread. No coroutine here ever suspends; one client serves many threads at once."""

import ssl
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, BinaryIO

import httpcore
import httpx

from carillon.blocking_streams import BlockingBackend, Deadline
from carillon.bodies import AnswerBody
from carillon.calls import iterate
from carillon.connections import message_of
from carillon.runtimes import KEPT_SECONDS, Limit, OnEvent


class BlockingRuntime:
    """A call blocks its thread while it waits."""

    blocking = True

    def slots(self, count: int) -> AbstractAsyncContextManager[object]:
        return _Slots(count)

    def signal(self) -> "_Signal":
        return _Signal()

    def limit(self, seconds: float) -> Deadline:
        return Deadline(seconds)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - to block is what it is for

    async def read(self, file: BinaryIO, size: int) -> bytes:
        return file.read(size)

    async def write(self, file: BinaryIO, content: bytes | bytearray) -> None:
        file.write(content)

    def open_pool(self, trust: ssl.SSLContext | None) -> "BlockingPool":
        return BlockingPool(trust)

    def content(self, parts: AsyncGenerator[bytes]) -> Iterator[bytes]:
        return iterate(parts)


class BlockingPool:
    """Connections whose streams are sockets."""

    def __init__(self, trust: ssl.SSLContext | None) -> None:
        self._backend = BlockingBackend()
        self._pool = httpcore.ConnectionPool(
            ssl_context=trust, keepalive_expiry=KEPT_SECONDS, network_backend=self._backend
        )

    async def exchange(self, request: httpx.Request, on_event: OnEvent, limit: Limit) -> httpx.Response:
        def note(event: str, _: Mapping[str, Any]) -> None:
            on_event(event)

        assert isinstance(limit, Deadline)
        self._backend.limit = limit
        answer = self._pool.handle_request(message_of(request, note))
        try:
            body = AnswerBody(answer.status, answer.headers)
            for part in answer.iter_stream():
                body.add(part)
            return body.response()
        finally:
            answer.close()

    async def close(self) -> None:
        self._pool.close()


class _Slots:
    """A semaphore."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    async def __aenter__(self) -> None:
        self._free.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._free.release()


class _Signal:
    """An event."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self) -> None:
        self._event.wait()
