"""Connections over HTTP/1.1 that are kept, and one exchange over them.

    request ──> Connections ──> a free Pool ──> the runtime's streams ──> AnswerBody

httpx says what a request and an answer are; httpcore keeps the connections. httpx's own client is not used: it logs
whole URLs, and a signed one is as good as a password; it also keeps cookies and asks the environment for proxies.

A failed connection raises an `OSError`: the system's own, if there is one.
"""

import os
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import cache
from typing import Any, BinaryIO, Protocol

import httpcore
import httpx

from carillon.errors import CarillonError

KEPT_SECONDS = 15.0
"""How long an idle connection is kept."""
OnEvent = Callable[[str], None]


class Limit(Protocol):
    """The time that an attempt has."""

    def restart(self) -> None:
        """Count from now."""


class Signal(Protocol):
    """Something that others wait for."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    async def wait(self) -> object: ...


class Pool(Protocol):
    """Connections for one exchange at a time."""

    async def exchange(self, request: httpx.Request, on_event: OnEvent, limit: Limit) -> httpx.Response:
        """The whole answer; `on_event` hears what httpcore tells meanwhile.

        Raises as httpcore does, `OSError`, or `CarillonError` for an answer that is too long.
        """
        ...

    async def close(self) -> None: ...


class Runtime(Protocol):
    """How a client waits. In a blocking one no coroutine ever suspends."""

    blocking: bool

    def slots(self, count: int) -> AbstractAsyncContextManager[object]:
        """Places for `count` at once; others wait."""
        ...

    def signal(self) -> Signal:
        """A signal that is not set."""
        ...

    def limit(self, seconds: float) -> AbstractAsyncContextManager[Limit]:
        """`TimeoutError` for what takes longer inside."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def read(self, file: BinaryIO, size: int) -> bytes: ...

    async def write(self, file: BinaryIO, content: bytes | bytearray) -> None: ...

    def open_pool(self, trust: ssl.SSLContext | None) -> Pool: ...

    def content(self, parts: AsyncGenerator[bytes]) -> AsyncIterator[bytes] | Iterator[bytes]:
        """The parts, as this pool reads them."""
        ...


MOST_BYTES = 64 * 2**20
"""More than any answer of Carillon's has, when it is decoded."""
_ENCODING = "Content-Encoding"
_GZIP = zlib.MAX_WBITS | 16


class AnswerBody:
    """The part of an answer's body that has arrived. A body in an encoding that was not asked for is left as it is."""

    def __init__(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._status = status
        self._headers = httpx.Headers(headers)
        self._content = bytearray()
        # httpx would decode what it knows, and without an end.
        encoding = self._headers.pop(_ENCODING, "").strip().lower()
        self._decoder = zlib.decompressobj(_GZIP) if encoding == "gzip" else None

    def add(self, part: bytes) -> None:
        """Decode what follows.

        Raises:
            CarillonError: the body is too long.
            httpx.DecodingError: it is not encoded as its head says.
        """
        left = MOST_BYTES - len(self._content)
        decoded = self._decode(part, left + 1)
        if len(decoded) > left:
            raise CarillonError(f"the answer is longer than {MOST_BYTES // 2**20} MiB", status=self._status)
        self._content += decoded

    def response(self) -> httpx.Response:
        return httpx.Response(self._status, headers=self._headers, content=bytes(self._content))

    def _decode(self, part: bytes, most: int) -> bytes:
        if self._decoder is None:
            return part
        try:
            return self._decoder.decompress(part, most)
        except zlib.error as error:
            raise httpx.DecodingError(str(error)) from error


EXPECT = {"Expect": "100-continue"}
READ_BYTES = 64 * 2**10
LARGE_BYTES = 64 * 2**10  # what is smaller is sent at once
HEARD_BYTES = 128 * 2**10  # more than the head of any answer
_CONTINUE = b"100"
_EXPECT_LINE = b"\r\nExpect: 100-continue\r\n"


class Progress:
    """How far a request is, and what was heard meanwhile. The first write after a read is the head of a request, the
    others are its content."""

    def __init__(self) -> None:
        self.heard = b""
        self._head_sent = False
        self._consent_asked = False

    def take_heard(self) -> bytes:
        """The bytes that were heard before the answer is read; the next write is that of another request."""
        self._head_sent = self._consent_asked = False
        heard, self.heard = self.heard, b""
        return heard

    def note_write(self, buffer: bytes) -> bool:
        """Whether this is content, which is large or small, and not a head."""
        if self._head_sent:
            return True
        self._head_sent, self._consent_asked = True, _EXPECT_LINE in buffer
        return False

    def must_wait(self) -> bool:
        """Whether the content waits for a consent; true once."""
        asked, self._consent_asked = self._consent_asked, False
        return asked

    @property
    def allowed(self) -> bool:
        """Whether the server consented."""
        return _CONTINUE in statuses_of(self.heard)

    @property
    def ended(self) -> bool:
        """Whether the server said something more than 1xx, or more than can be meant."""
        return len(self.heard) > HEARD_BYTES or is_final(statuses_of(self.heard))


def statuses_of(heard: bytes) -> list[bytes]:
    """The statuses that an answer has shown so far: any number of 1xx, when their heads are complete, and another."""
    found = []
    while len(heard) >= len("HTTP/1.1 200"):
        status = heard[9:12]
        if status.startswith(b"1"):
            _, end, heard = heard.partition(b"\r\n\r\n")
            if not end:
                break
        else:
            heard = b""
        found.append(status)
    return found


def is_final(statuses: Sequence[bytes]) -> bool:
    """Whether something more than 1xx was said."""
    return any(not status.startswith(b"1") for status in statuses)


# A request that may be done twice may be sent twice (RFC 9110, 9.2.2).
_IDEMPOTENT = frozenset({"GET", "PUT", "PATCH", "DELETE"})
_FAILURES = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
    httpx.DecodingError,
)
_LEFT: list[Pool] = []
"""Connections of a parent process, which this process neither closes nor uses."""
OnSent = Callable[[], None]


class Connections:
    """As many connections to a host as exchanges were underway at once. An exchange has no time limit of its own.

    Each exchange has a pool to itself: one that was used last. A pool that many share gives one free connection to
    several of them, and all but one try again: with 20 exchanges at once this takes three times as long.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._pools: list[Pool] = []
        self._free: dict[bool, list[Pool]] = {True: [], False: []}  # those of https URLs, and those of http
        self._closed = False
        self._process = os.getpid()

    async def exchange(
        self, request: httpx.Request, on_sent: OnSent, limit: Limit, *, repeatable: bool
    ) -> httpx.Response:
        """The whole answer to a request. `on_sent` is called whenever the request may reach the server from now on.

        The server may close a kept connection at the moment when it is used again. The request is then sent once more,
        on another one, if its method is idempotent and its content `repeatable`.

        Raises:
            OSError: there is no answer.
            CarillonError: it is too long.
        """
        trace = _Trace(on_sent)
        try:
            return await self._exchange_once(request, trace, limit)
        except OSError:
            if trace.connected or not repeatable or request.method not in _IDEMPOTENT:
                raise
        return await self._exchange_once(request, trace, limit)

    async def close(self) -> None:
        """Close all connections, those of exchanges that are underway too. A later exchange is a `RuntimeError`."""
        self._closed = True
        for pool in self._pools:
            await pool.close()

    async def _exchange_once(self, request: httpx.Request, trace: "_Trace", limit: Limit) -> httpx.Response:
        with self._pool(secure=request.url.scheme == "https") as pool:
            try:
                return await pool.exchange(request, trace.note, limit)
            except _FAILURES as error:
                raise cause_of(error) from None

    @contextmanager
    def _pool(self, *, secure: bool) -> Iterator[Pool]:
        if self._closed:
            raise RuntimeError("this client is closed")
        self._leave_to_parent()
        free = self._free[secure]
        pool = free.pop() if free else self._open(secure=secure)
        try:
            yield pool
        finally:
            free.append(pool)

    def _leave_to_parent(self) -> None:
        """After a fork, leave the connections to the process that opened them: two would read each other's answers."""
        if self._process != os.getpid():
            self._process = os.getpid()
            _LEFT.extend(self._pools)
            self._pools, self._free = [], {True: [], False: []}

    def _open(self, *, secure: bool) -> Pool:
        pool = self._runtime.open_pool(_trust() if secure else None)
        self._pools.append(pool)
        return pool


class _Trace:
    """The events of an exchange, as httpcore reports them."""

    def __init__(self, on_sent: OnSent) -> None:
        self.connected = False
        self._on_sent = on_sent

    def note(self, event: str) -> None:
        if event == "connection.connect_tcp.started":
            self.connected = True
        elif event == "http11.send_request_headers.started":
            self._on_sent()


def cause_of(error: BaseException) -> OSError:
    """The system's own error, where httpcore only says that something failed."""
    found: OSError | None = None
    following: BaseException | None = error
    while following is not None:
        if isinstance(following, OSError):
            found = following
        following = (
            following.exceptions[-1] if isinstance(following, BaseExceptionGroup) else following.__cause__
        )  # fmt: skip
    return found or ConnectionError(f"{type(error).__name__}: {error}".removesuffix(": "))


def message_of(request: httpx.Request, trace: Callable[..., Any]) -> httpcore.Request:
    """The request as httpcore takes it."""
    url = request.url
    return httpcore.Request(
        request.method,
        httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=request.headers.raw,
        content=request.stream,
        extensions={"trace": trace},
    )


@cache
def _trust() -> ssl.SSLContext:
    """The certificates that this machine trusts. Reading them takes some 30 ms, so all clients share one context."""
    return ssl.create_default_context()
