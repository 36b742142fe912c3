"""The last moment before a request leaves: aiohttp has a connection in hand, and has not written to it.

    connect ──> closed by the peer? ──> already left? ──> before_bytes ──> head and body, in the same step

aiohttp 3.14 on Python 3.11 writes the body, and the head with it, in a task of its own, one turn of the event loop
later; under load that is milliseconds between the judgement and the bytes. So the first step of that task is taken at
once, as newer Pythons do.
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
    """A kept connection was closed by the other side, which the event loop has not seen yet. Another one may do."""


class Departure:
    """Lets one request leave at most once, if its caller still wants that. `kept` are the connections that a request
    has left on before."""

    def __init__(self, before_bytes: Callable[[], bool], kept: WeakSet[asyncio.BaseProtocol]) -> None:
        self._before_bytes = before_bytes
        self._kept = kept
        self.left = False
        """Whether a byte may have left. In doubt it has."""

    @contextmanager
    def of_this_task(self) -> Iterator[None]:
        """Watch over the requests that this task makes meanwhile."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def let_go(self, connection: Connection) -> None:
        """Let the request leave on this connection.

        Raises:
            StaleConnection: nobody listens there any more.
            Withheld: the caller does not want it any more. The connection is kept.
            aiohttp.ClientConnectionError: it has left already, and aiohttp would repeat it; or the other side closes
                new connections, too.
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
    """A request that leaves when its departure lets it go; without one, as aiohttp does it."""

    _departure: Departure | None = None
    _is_written = False

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        self._departure = _current.get()
        if self._departure is not None:
            self._departure.let_go(conn)
        response = await super().send(conn)
        if self._is_written:
            # Else a connection whose answer comes before the writer's task has its turn, as on uvloop, is not kept.
            response._writer = None  # noqa: SLF001 - aiohttp has it for subclasses
        return response

    def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> Coroutine[Any, Any, None]:
        writing = super().write_bytes(writer, conn, content_length)
        return writing if self._departure is None else self._begin(writing)

    def _begin(self, writing: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """Take the first step now, and return what is left to be done."""
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


async def _end() -> None:
    """Nothing is left to be done."""
