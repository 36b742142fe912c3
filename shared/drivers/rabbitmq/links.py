"""Connections to RabbitMQ that fail visibly, and the only place that catches the driver's errors.

aio-pika's robust connections can hang a publish until they are back, and may come back without their consumers. So
plain ones are used: a `Line` opens a connection when it is needed, and again after it has died. Every wait has a
deadline. A wait on a dying connection ends at once, and missing heartbeats reveal a silent server within about 20 s.
"""

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import aio_pika
import structlog
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.connection import make_url
from aio_pika.exceptions import CONNECTION_EXCEPTIONS, ChannelNotFoundEntity, InvalidFrameError, PublishError
from aiormq.abc import AbstractConnection as UnderlyingConnection

from shared.core.errors import Unavailable
from shared.drivers.rabbitmq.confirms import ConfirmedChannel
from shared.runtime.server_settings import TlsSettings
from shared.runtime.tls import client_context

log = structlog.get_logger(__name__)

CLOSE_SECONDS = 5.0
# aiormq gives up after three missing heartbeats; RabbitMQ advises against less than 5 s.
HEARTBEAT_SECONDS = 5
# One per exchange in use; RabbitMQ allows 2,047 on a connection by default.
CONFIRMING_CHANNELS = 64
# The driver's own options in a URL; if one is there, the driver verifies as they say.
_OWN_FILES = frozenset({"cafile", "capath", "cadata", "certfile", "keyfile", "no_verify_ssl"})


class NoAnswer(Unavailable):
    """A deadline passed: the connection is not trusted any more."""


@asynccontextmanager
async def answer_within(what: str, seconds: float) -> AsyncIterator[None]:
    """Give the server this time, and turn the driver's errors into `Unavailable`."""
    try:
        async with asyncio.timeout(seconds), _own_cancellation(what):
            yield
    except TimeoutError as error:
        raise NoAnswer(f"RabbitMQ: {what}: no answer") from error
    except (ChannelNotFoundEntity, PublishError) as error:
        raise Unavailable(f"RabbitMQ: {what}: there is no such queue; `carillon init` makes it ({error})") from error
    except Exception as error:
        # aiormq ends the waits on a closing channel with a bare `Exception`.
        if isinstance(error, CONNECTION_EXCEPTIONS) or type(error) is Exception:
            raise Unavailable(f"RabbitMQ: {what}: {error!r}") from error
        raise


@asynccontextmanager
async def _own_cancellation(what: str) -> AsyncIterator[None]:
    """Let only this task's cancellation through: aiormq also cancels the waits on a stuck connection."""
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > before:
            raise
        raise Unavailable(f"RabbitMQ: {what}: the connection was closed") from error


class Link:
    def __init__(self, connection: AbstractConnection) -> None:
        self.connection = connection
        self._lock = asyncio.Lock()
        self._publisher: AbstractChannel | None = None
        self._confirming: OrderedDict[str, ConfirmedChannel] = OrderedDict()

    @property
    def alive(self) -> bool:
        transport = self.connection.transport
        return (
            transport is not None
            and transport.connection.is_opened
            and (self._publisher is None or not self._publisher.is_closed)
        )

    async def publisher(self) -> AbstractChannel:
        """The channel that all publishes share. Without `on_return_raises`, messages to a missing queue would be
        lost."""
        async with self._lock:
            if self._publisher is None:
                self._publisher = await self.connection.channel(publisher_confirms=True, on_return_raises=True)
            return self._publisher

    async def open_confirmed(self, exchange: str) -> ConfirmedChannel:
        """The channel for users' messages to this exchange. An error there closes only this channel."""
        async with self._lock:
            channel = self._confirming.pop(exchange, None)
            if channel is None or channel.closed:
                await self._make_room()
                channel = ConfirmedChannel(self._raw_connection())
                await channel.open()
            self._confirming[exchange] = channel
            return channel

    def _raw_connection(self) -> UnderlyingConnection:
        if self.connection.transport is None:
            raise Unavailable("RabbitMQ: the connection is gone")
        return self.connection.transport.connection

    async def _make_room(self) -> None:
        for exchange, channel in list(self._confirming.items()):
            if channel.closed:
                del self._confirming[exchange]
        if len(self._confirming) < CONFIRMING_CHANNELS:
            return
        idle = next((exchange for exchange, channel in self._confirming.items() if channel.idle), None)
        if idle is None:
            raise Unavailable("RabbitMQ: messages for too many exchanges are on their way")
        await self._confirming.pop(idle).close()

    async def close(self) -> None:
        try:
            async with answer_within("close", CLOSE_SECONDS):
                await self.connection.close()
        except Unavailable as error:
            log.info("connection did not close in order", error=str(error))


def rabbit_context(url: str, tls: TlsSettings) -> ssl.SSLContext | None:
    """The TLS context; `None` for a plain connection, or if the URL names its own files. Raises `Invalid`."""
    parts = urlsplit(url)
    own = parse_qs(parts.query).keys() & _OWN_FILES
    return client_context(tls) if parts.scheme == "amqps" and not own else None


class Line:
    """Provides a connection of this name; opens it when it is needed, and again after it has died."""

    def __init__(self, url: str, name: str, trust: ssl.SSLContext | None = None) -> None:
        self._url = url
        self._name = name
        self._trust = trust
        self._heartbeat = parse_qs(urlsplit(url).query).get("heartbeat", [str(HEARTBEAT_SECONDS)])[0]
        self._lock = asyncio.Lock()
        self._link: Link | None = None
        self._farewells: dict[Link, asyncio.Task[None]] = {}
        self._closed = False

    @asynccontextmanager
    async def ask(self, what: str, seconds: float) -> AsyncIterator[Link]:
        """An open connection for a question that must be answered in `seconds`."""
        link: Link | None = None
        try:
            async with answer_within(what, seconds):
                link = await self._ensure_open()
                yield link
        except NoAnswer:
            # Other questions on this connection may still be answered: perhaps only one queue is stuck.
            self.retire(link, after=seconds)
            raise

    def retire(self, link: Link | None, *, after: float = 0) -> None:
        """Use this connection no more, and close it after `after` seconds."""
        if link is None or link is not self._link:
            return
        self._link = None
        self._farewells[link] = asyncio.create_task(self._farewell(link, after))

    async def close(self) -> None:
        async with self._lock:
            self._closed = True
            self.retire(self._link)
        for farewell in self._farewells.values():
            farewell.cancel()
        await asyncio.gather(*(link.close() for link in list(self._farewells)))

    async def _ensure_open(self) -> Link:
        async with self._lock:
            if self._closed:
                raise Unavailable("the broker was closed")
            if self._link is None or not self._link.alive:
                self.retire(self._link)
                self._link = await self._open()
            return self._link

    async def _open(self) -> Link:
        url = make_url(self._url, name=self._name, heartbeat=self._heartbeat)
        connection = aio_pika.Connection(url, ssl_context=self._trust)
        try:
            await connection.connect()
        except BaseException as error:
            # A half-open connection would close itself at garbage collection, perhaps outside of any loop.
            await connection.close()
            if not isinstance(error, InvalidFrameError):
                raise
            # aiormq ignores the server's reason when the server closes a connection instead of opening it.
            vhost = urlsplit(self._url).path[1:] or "/"
            raise Unavailable(f"RabbitMQ: virtual host {vhost} does not exist, or its user may not use it") from error
        return Link(connection)

    async def _farewell(self, link: Link, after: float) -> None:
        await asyncio.sleep(after)
        await link.close()
        del self._farewells[link]
