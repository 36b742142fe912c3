"""The last moment before a request leaves, and the first bytes of its answer.

    connect ──> closed by the peer? ──> already left? ──> before_bytes ──> head and body, in the same step

aiohttp 3.14 on Python 3.11 writes head and body in a separate task, one turn of the event loop later. Under load,
milliseconds pass between the judgement and the bytes. So this module takes the first step of that task at once, as
newer Pythons do.

The status is the answer. So a connection reads as much of an answer as is valid, and a broken body does not hide it.
"""

import asyncio
import re
import select
from asyncio import BaseTransport
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader

from shared.drivers.http import Withheld

_HALF_CLOSED = getattr(select, "POLLRDHUP", 0)  # Linux only; elsewhere a reset is visible, a polite close is not


def is_closed_by_peer(transport: BaseTransport | None) -> bool:
    """Whether the other end has closed the connection, as far as this machine knows."""
    return _polls(transport, _HALF_CLOSED)


def _polls(transport: BaseTransport | None, events: int) -> bool:
    raw = transport.get_extra_info("socket") if transport is not None else None
    if raw is None or raw.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(raw.fileno(), events)
    return bool(poll.poll(0))


class StaleConnection(Exception):
    """The other side closed a kept connection, and the event loop has not seen it yet. Another connection may work."""


class Departure:
    """Lets one request leave at most once, if its caller still wants that. `kept` are the connections of earlier
    requests."""

    def __init__(self, before_bytes: Callable[[], bool], kept: WeakSet[asyncio.BaseProtocol]) -> None:
        self._before_bytes = before_bytes
        self._kept = kept
        self.left = False
        """Whether a byte may have left. In doubt it has."""

    @contextmanager
    def of_this_task(self) -> Iterator[None]:
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def let_go(self, connection: Connection) -> None:
        """Let the request leave on this connection.

        Raises:
            StaleConnection: the other side has closed the kept connection.
            Withheld: the caller does not want the request any more. The connection is kept.
            aiohttp.ClientConnectionError: the request has already left, and aiohttp would repeat it; or the other side
                closed a new connection.
        """
        protocol = connection.protocol
        if self.left or protocol is None:
            raise aiohttp.ClientConnectionError("a request leaves once")
        if is_closed_by_peer(connection.transport):
            raise StaleConnection if protocol in self._kept else aiohttp.ClientConnectionError("closed at once")
        self._kept.add(protocol)
        if not self._before_bytes():
            connection.release()
            raise Withheld("the caller wants the request no more")
        self.left = True


_current: ContextVar[Departure | None] = ContextVar("departure", default=None)


class DepartingRequest(aiohttp.ClientRequest):
    """A request that leaves when its departure allows it; without a departure, as in aiohttp."""

    _departure: Departure | None = None
    _is_written = False

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        self._departure = _current.get()
        if self._departure is not None:
            self._departure.let_go(conn)
        response = await super().send(conn)
        if self._is_written:
            # Otherwise aiohttp drops a connection whose answer comes before the writer's task runs, as on uvloop.
            response._writer = None  # noqa: SLF001 - aiohttp has it for subclasses
        return response

    def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> Coroutine[Any, Any, None]:
        writing = super().write_bytes(writer, conn, content_length)
        return writing if self._departure is None else self._begin(writing)

    def _begin(self, writing: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """Take the first step now, and return the rest."""
        try:
            awaited = writing.send(None)
        except StopIteration:
            self._is_written = True
            return _end()
        return _go_on(writing, awaited)


async def _go_on(coroutine: Coroutine[Any, Any, None], awaited: asyncio.Future[Any] | None) -> None:
    if awaited is not None:
        await asyncio.wait([awaited])
    await coroutine


async def _end() -> None: ...


MOST_HEADS = 5
"""The most answers to one request, including the final one."""
HEAD_BYTES = 65_536
LATE_BYTES = 4_096  # of the previous answer, before a head
HEAD_LINES = 500  # lines beyond these are dropped
_HEAD_END = re.compile(rb"\n\r?\n")
_NAME = b"HTTP/"
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n"})
_STATUS = re.compile(rb"HTTP/\d(?:\.(\d))?[ \t]+(\d{3})(?!\d)", re.IGNORECASE)
_FOLD = re.compile(rb"\n[ \t]+")
_FIELD = re.compile(rb"^([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*:[ \t]*(.*)$", re.MULTILINE)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_BODILESS = frozenset({b"204", b"304"})


class BoundedHandler(ResponseHandler):
    """A connection that ends after too many answers to one request, and is aborted when it is not needed."""

    _head = b""
    _heads = 0
    _is_kept = False
    _is_final = False
    """Whether the head of the last answer is read."""

    def set_response_params(self, **options: Any) -> None:
        self._is_kept |= self._is_final
        self._is_final = False
        self._heads = 0
        super().set_response_params(**options)

    def is_connected(self) -> bool:
        idle = self._is_final and not self._is_in_body()
        # Not if bytes or the end have arrived that the event loop has not read.
        return super().is_connected() and not (idle and _polls(self.transport, _HALF_CLOSED | select.POLLIN))

    def close(self) -> None:
        self.abort()

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        if self._is_final:
            self._end("more than an answer")
        else:
            super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            super().data_received(data)  # arrived before the request
            return
        if not self._is_final:
            data = self._read_heads(data)
        if data and self._is_final and not self._is_in_body():
            self._end("more than an answer")
        elif self._is_final:
            super().data_received(data)
            if self.exception() is not None:
                self._end("a broken body, or more than it")
                if self._payload is not None:
                    self._payload.feed_eof()

    def _is_in_body(self) -> bool:
        return self._payload is not None and not self._payload.is_eof()

    def _read_heads(self, data: bytes) -> bytes:
        """Read the heads; return the bytes after the last one."""
        self._head += data
        while self._has_begun():
            end = _HEAD_END.search(self._head, max(len(self._head) - len(data) - 2, 0), HEAD_BYTES)
            self._heads += end is not None
            if self._heads > MOST_HEADS or (end is None and len(self._head) >= HEAD_BYTES):
                self._end("a head without an end")
                break
            if end is None:
                break
            head, self._head = self._head[: end.end()], self._head[end.end() :]
            self._read_head(head)
            if self._is_final:
                rest, self._head = self._head, b""
                return rest
        return b""

    def _has_begun(self) -> bool:
        """Whether a head begins here. Skips blank lines and the rest of the previous answer."""
        self._head = self._head.lstrip(b"\r\n")
        if self.exception() is not None or not self._head:
            return False
        if self._head[: len(_NAME)].upper() == _NAME[: len(self._head)]:
            return True
        begin = _STATUS.search(self._head) if self._is_kept else None
        if begin is not None:
            self.force_close()
            self._head = self._head[begin.start() :]
        elif not self._is_kept or len(self._head) >= LATE_BYTES:
            self._end("not HTTP")
        return begin is not None

    def _read_head(self, head: bytes) -> None:
        text = _FOLD.sub(b" ", head.translate(None, _CONTROLS))
        status = _STATUS.match(text)
        if status is None:
            self._end("no status")
            return
        version, code = b"1.0" if status[1] == b"0" else b"1.1", status[2]
        super().data_received(b"\r\n".join([b"HTTP/%b %b " % (version, code), *_lines(text, code), b"", b""]))
        self._is_final = not code.startswith(b"1") or code == b"101"

    def _end(self, reason: str) -> None:
        """End the connection. An answer that was read stays valid."""
        self.set_exception(HttpProcessingError(message=reason))
        if self.transport is not None:
            self.transport.abort()


def _lines(head: bytes, code: bytes) -> Iterator[bytes]:
    """The fields of a head, with at most one about the body's length."""
    lengths, codings = set[bytes](), list[bytes]()
    for number, (name, value) in enumerate(_FIELD.findall(head)):
        match name.lower():
            case b"content-length":
                lengths.update(part.strip() for part in value.split(b","))
            case b"transfer-encoding":
                codings += value.lower().split(b",")
            case _ if number < HEAD_LINES:
                yield b"%b: %b" % (name, value)
    if code in _BODILESS or code.startswith(b"1"):
        return
    if codings and codings[-1].strip() == b"chunked":
        yield b"Transfer-Encoding: chunked"
    elif len(lengths) == 1 and _LENGTH.fullmatch(length := lengths.pop()):
        yield b"Content-Length: %b" % length


class BoundedConnector(aiohttp.TCPConnector):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = partial(BoundedHandler, loop=self._loop)  # type: ignore[assignment]  # it is one, made more strict
