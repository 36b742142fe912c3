"""POSTs to one server by HTTP/2, over connections that are kept.

    a connection with room, alive ──> before_bytes ──> head and body, in the same step ──> the answer

A connection carries as many requests as its server allows: a server says so in its first frame, and APNs allows one
until it has seen the token. Another connection is made only if all present ones have answered often and are full. A
connection that was silent for long is pinged first. If a server that has answered before does not look at a request,
the request begins once more, and `before_bytes` is asked again.
"""

import asyncio
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

from msgspec import Struct

from shared.drivers.http import Blocked, NotConnected, PostedAnswer, Posting, Unreachable, Withheld
from shared.drivers.http.guard import Guard
from shared.providers.calls import connect_socket, describe_fault
from shared.providers.http2_connection import BODY_BYTES, Http2Connection, Http2Request, Unseen

CONNECTIONS = 8
GREETING_SECONDS = 5.0  # for TLS and the server's first frame
_PROTOCOL = "h2"


class Http2Target(Struct, frozen=True):
    """The server to connect to. `prefix` comes before each path."""

    host: str
    port: int
    tls: bool
    authority: str
    prefix: str


def target_of(url: str) -> Http2Target:
    """The server of a URL that has passed `check_url`."""
    parts = urlsplit(url)
    tls = parts.scheme.lower() == "https"
    return Http2Target(
        host=parts.hostname or "",
        port=parts.port or (443 if tls else 80),
        tls=tls,
        authority=parts.netloc,
        prefix=parts.path.rstrip("/"),
    )


def trusting_context() -> ssl.SSLContext:
    """A context with the system's certificates that offers only HTTP/2."""
    context = ssl.create_default_context()
    context.set_alpn_protocols([_PROTOCOL])
    return context


class Http2Poster:
    """POSTs to one server, as `shared.drivers.http.Outgoing.post` makes them."""

    def __init__(self, target: Http2Target, guard: Guard, trust: ssl.SSLContext) -> None:
        self._target = target
        self._connections = Http2Connections(target, guard, trust)

    async def post(self, posting: Posting) -> PostedAnswer:
        """See `shared.drivers.http.Outgoing.post`. The posting's body has at most `BODY_BYTES`."""
        departure = _Departure(posting, self._target)
        try:
            async with asyncio.timeout(posting.timeout_seconds):
                with suppress(Unseen):
                    departure.begin(await self._connections.find_room(len(posting.body)))
                    return await departure.end()
                departure.forget()
                departure.begin(await self._connections.find_room(len(posting.body)))
                return await departure.end()
        except TimeoutError:
            return departure.judge_silence(f"gave no answer within {posting.timeout_seconds:g} s")
        except (NotConnected, Unreachable) as error:
            told = NotConnected if isinstance(error, NotConnected) else Unreachable
            raise told(f"{self._target.host} {error}") from None
        finally:
            departure.leave()

    async def close(self) -> None:
        """End the connections; requests under way may end without an answer."""
        await self._connections.close()


class _Departure:
    def __init__(self, posting: Posting, target: Http2Target) -> None:
        self._posting = posting
        self._target = target
        self._connection: Http2Connection | None = None
        self._request: Http2Request | None = None

    def begin(self, connection: Http2Connection) -> None:
        if not self._posting.before_bytes():
            raise Withheld("the caller wants the request no more")
        self._connection = connection
        self._request = connection.begin(self._headers(), self._posting.body)

    def forget(self) -> None:
        self._connection = self._request = None

    async def end(self) -> PostedAnswer:
        assert self._request is not None
        return await self._request.end()

    def judge_silence(self, reason: str) -> PostedAnswer:
        """The partial answer at a time-out. Raises `NotConnected` or `Unreachable`."""
        if self._request is None:
            raise NotConnected(f"{self._target.host} {reason}")
        if not self._request.answered:
            raise Unreachable(f"{self._target.host} {reason}")
        return self._request.answer()

    def leave(self) -> None:
        if self._connection is not None and self._request is not None:
            self._connection.abandon(self._request)

    def _headers(self) -> list[tuple[str, str]]:
        path = urlsplit(self._posting.url).path
        scheme = "https" if self._target.tls else "http"
        return [
            (":method", "POST"),
            (":scheme", scheme),
            (":authority", self._target.authority),
            (":path", path),
            *((name.lower(), value) for name, value in self._posting.headers.items()),
            ("content-length", str(len(self._posting.body))),
        ]


class Http2Connections:
    def __init__(self, target: Http2Target, guard: Guard, trust: ssl.SSLContext) -> None:
        self._target = target
        self._guard = guard
        self._trust = trust
        self._connections: list[Http2Connection] = []
        self._dialling: asyncio.Task[None] | None = None
        self._fault: Exception | None = None
        self._changed = asyncio.Event()
        self._made = 0
        self._closed = False

    async def find_room(self, size: int) -> Http2Connection:
        """A connection on which a body of this size can leave at once, in the caller's present step."""
        if size > BODY_BYTES:
            raise NotConnected(f"is told no more than {BODY_BYTES:,} bytes")
        made = self._made
        while not self._closed:
            if self._made - made > CONNECTIONS:
                raise NotConnected("ends its connections as soon as they are made")
            found = next((connection for connection in self._connections if connection.has_room(size)), None)
            if found is None:
                await self._wait_for_change()
            elif found.fresh:
                return found
            else:
                await found.renew()
        raise NotConnected("is not connected to any more: the account is closed")

    async def close(self) -> None:
        self._closed = True
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        await asyncio.gather(*(connection.close() for connection in self._connections))
        self._note_change()

    async def _wait_for_change(self) -> None:
        """Wait until there may be room. Raises the reason if there is no connection."""
        changed = self._changed
        if self._dialling is None and self._may_grow():
            self._fault = None
            self._dialling = asyncio.create_task(self._dial())
        await changed.wait()
        if self._fault is not None and self._dialling is None and not self._connections:
            raise type(self._fault)(str(self._fault))

    def _may_grow(self) -> bool:
        taking = [connection for connection in self._connections if connection.open]
        return len(taking) < CONNECTIONS and all(connection.full for connection in taking)

    def _note_change(self) -> None:
        self._connections = [connection for connection in self._connections if not connection.ended]
        self._changed.set()
        self._changed = asyncio.Event()

    async def _dial(self) -> None:
        try:
            made = await self._connect()
            self._connections.append(made)
            self._made += 1
        except (Blocked, NotConnected) as error:
            self._fault = error
        except (OSError, TimeoutError) as error:
            self._fault = NotConnected(describe_fault(error))
        finally:
            self._dialling = None
            self._note_change()

    async def _connect(self) -> Http2Connection:
        raw = await connect_socket(self._target.host, self._target.port, self._guard)
        async with asyncio.timeout(GREETING_SECONDS):
            transport, connection = await asyncio.get_running_loop().create_connection(
                lambda: Http2Connection(self._note_change),
                sock=raw,
                ssl=self._trust if self._target.tls else None,
                server_hostname=self._target.host if self._target.tls else None,
            )
            try:
                session = transport.get_extra_info("ssl_object")
                if session is not None and session.selected_alpn_protocol() != _PROTOCOL:
                    raise NotConnected("does not speak HTTP/2")
                await connection.become_ready()
            except BaseException:
                connection.cut()
                raise
        return connection
