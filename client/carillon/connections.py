"""Connections that are kept, HTTP/1.1, and one exchange over them.

httpx says what a request and an answer are, httpcore, on which it stands, keeps the connections. httpx's own client is
not between them: it logs whole URLs, and a signed one is as good as a password; it also keeps cookies and asks the
environment for proxies.

A failed connection raises an `OSError`: the system's own, if there is one.
"""

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpcore
import httpx

from carillon.runtimes import Limit, Pool, Runtime

# A request that may be done twice may be sent twice (RFC 9110, 9.2.2).
_IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})
_FAILURES = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
    httpx.DecodingError,
)

_LEFT: list[Pool] = []
"""Connections of a parent process, which nobody here closes or uses."""

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
