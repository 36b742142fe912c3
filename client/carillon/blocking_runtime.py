"""Waiting by blocking the thread, and streams with a deadline whose server may answer early."""

import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import Any, BinaryIO, Self, TypeVar

import httpcore
import httpx

from carillon.calls import iterate
from carillon.connections import KEPT_SECONDS, LARGE_BYTES, READ_BYTES, AnswerBody, Limit, OnEvent, Progress, message_of

T = TypeVar("T")


class Deadline:
    """When an attempt is over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        self._end = time.monotonic() + self._seconds

    def left(self) -> float:
        """The seconds until then. Raises `TimeoutError`."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    async def __aenter__(self) -> Self:
        self.restart()
        return self

    async def __aexit__(self, *_: object) -> None: ...


class BlockingBackend(httpcore.NetworkBackend):
    """Connects over TCP. It serves one exchange at a time, which sets the `limit` of it."""

    def __init__(self) -> None:
        self.limit = Deadline(0)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        connection = socket.create_connection((host, port), self.limit.left())
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return BlockingStream(connection, self)


class BlockingStream(httpcore.NetworkStream):
    """A socket that is waited for; while large content is sent, both ways."""

    def __init__(self, connection: socket.socket, backend: BlockingBackend) -> None:
        self._socket = connection
        self._backend = backend
        self._progress = Progress()
        self._listening = False

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._listening = False
        return self._progress.take_heard() or self._receive(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            if self._progress.note_write(buffer):
                self._hear(large=len(buffer) >= LARGE_BYTES)
            self._send(buffer)
        except TimeoutError:
            raise
        except OSError as error:
            raise httpcore.WriteError(error) from error

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        try:
            self._socket = ssl_context.wrap_socket(
                self._socket, server_hostname=server_hostname, do_handshake_on_connect=False
            )
            self._perform(self._socket.do_handshake, EVENT_READ)
        except BaseException:
            self.close()
            raise
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._is_readable() if info == "is_readable" else None

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for it
        self._socket.close()

    def _hear(self, *, large: bool) -> None:
        """Hear the server before content is sent. Raises `WriteError` where it has answered."""
        progress = self._progress
        if progress.must_wait():
            while not (progress.allowed or progress.ended) and (part := self._receive(READ_BYTES)):
                progress.heard += part
            if not progress.allowed:
                raise httpcore.WriteError("answered before the content was sent")
        self._listening = self._listening or large

    def _send(self, buffer: bytes) -> None:
        left = memoryview(buffer)
        while left:
            left = left[self._perform(partial(self._send_part, left), EVENT_WRITE) :]

    def _send_part(self, part: memoryview) -> int:
        if self._listening:
            self._listen()
        return self._socket.send(part)

    def _listen(self) -> None:
        """Take what the server has said so far. Raises `WriteError` where it has answered, or ended the connection."""
        with suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            part = self._socket.recv(READ_BYTES)
            self._progress.heard += part
            if not part or self._progress.ended:
                raise httpcore.WriteError("answered before the request was sent")

    def _receive(self, max_bytes: int) -> bytes:
        return self._perform(partial(self._socket.recv, max_bytes), EVENT_READ)

    def _perform(self, operation: Callable[[], T], event: int) -> T:
        while True:
            try:
                return operation()
            except ssl.SSLWantWriteError:
                self._wait(EVENT_WRITE)
            except ssl.SSLWantReadError:
                self._wait(EVENT_READ)
            except BlockingIOError:
                self._wait(event)

    def _wait(self, events: int) -> None:
        if self._is_closed():
            raise ConnectionAbortedError("this connection was closed")
        if not self._select(events | EVENT_READ if self._listening else events, self._backend.limit.left()):
            raise TimeoutError

    def _is_readable(self) -> bool:
        return self._is_closed() or self._select(EVENT_READ, 0)

    def _is_closed(self) -> bool:
        return self._socket.fileno() < 0

    def _select(self, events: int, seconds: float) -> bool:
        with DefaultSelector() as selector:
            selector.register(self._socket, events)
            return bool(selector.select(seconds))


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
    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    async def __aenter__(self) -> None:
        self._free.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._free.release()


class _Signal:
    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self) -> None:
        self._event.wait()
