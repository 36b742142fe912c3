"""Sockets that block a thread for no longer than an attempt may take, and that hear early answers; see
`early_answers`."""

import socket
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import Any, Self, TypeVar

import httpcore

from carillon.early_answers import LARGE_BYTES, READ_BYTES, Progress

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
