"""The last moment before a request leaves: aiohttp has a connection, and has not written to it.

    connect ──> closed by the peer? ──> already left? ──> before_bytes ──> head and body, in the same step

aiohttp 3.14 on Python 3.11 writes head and body in a separate task, one turn of the event loop later. Under load,
milliseconds pass between the judgement and the bytes. So this module takes the first step of that task at once, as
newer Pythons do.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection

from shared.outgoing import Withheld
from shared.outgoing.sockets import is_closed_by_peer


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
