"""Calls over HTTP: a bounded pool of connections, attempts with pauses between, and an end that waits for what is in
flight.

Whether an earlier attempt may have reached the server is known here: aiohttp tells when the head of a request has
gone out, also where it repeats an idempotent request by itself because a kept connection turned out to be closed.
"""

import asyncio
import random
import re
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec import Struct

from carillon.client.errors import CarillonError, Unavailable, error_of
from carillon.client.retries import LONGEST_RETRY_AFTER_SECONDS, RETRIED, delay_seconds, retry_after_seconds

JSON = "application/json"
NDJSON = "application/x-ndjson"

# Keys, ids and timestamps. Anything else would lead to another path: a slash even when it is quoted.
_SEGMENT = re.compile(r"[A-Za-z0-9\-_.~:]{1,255}")

T = TypeVar("T")
Query = Mapping[str, str]


class Answer(Struct, frozen=True):
    """An answer that is no error."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def read(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The body. Raises `CarillonError` where it is none of Carillon's."""
        with _readable(self.status):
            return decoder.decode(self.content)

    def read_lines(self, decoder: msgspec.json.Decoder[T]) -> list[T]:
        """The body, a value a line. As `read`."""
        with _readable(self.status):
            return decoder.decode_lines(self.content)


class _Request(Struct, kw_only=True):
    """One call. `reached` counts the attempts that may have reached the server, the running one included."""

    method: str
    path: str
    query: Query
    content: bytes
    headers: dict[str, str]
    done_before: frozenset[int]
    reached: int = 0


class _Failed(Struct, frozen=True):
    """An attempt that is worth another one."""

    cause: Exception
    status: int | None = None
    retry_after: float | None = None


class Transport:
    """Speaks HTTP to one deployment."""

    def __init__(
        self, base_url: str, *, headers: Mapping[str, str], timeout_seconds: float, attempts: int, connections: int
    ) -> None:
        self._base = _checked_base(base_url)
        self._headers = dict(headers)
        self._timeout_seconds = timeout_seconds
        self._attempts = attempts
        # Whoever waits for a connection waits here, outside the time-out of an attempt.
        self._free = asyncio.Semaphore(connections)
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        content: bytes = b"",
        content_type: str = JSON,
        idempotency_key: str = "",
        done_before: frozenset[int] = frozenset(),
    ) -> Answer:
        """The answer. A status in `done_before` is one, and no error, where an earlier attempt of this call may have
        reached the server: it tells that that one was successful.

        Raises:
            CarillonError: the answer is an error, or there is none after all attempts (`Unavailable`).
        """
        request = _Request(
            method=method,
            path=path,
            query=query or {},
            content=content,
            headers=_headers(method, content_type if content else "", idempotency_key),
            done_before=done_before,
        )
        async with self._underway():
            return await self._answered(request)

    async def close(self) -> None:
        """Refuse new calls, wait for those in flight, and close the connections."""
        self._closed = True
        try:
            await self._idle.wait()
        finally:
            if self._session is not None:
                await self._session.close()

    async def _answered(self, request: _Request) -> Answer:
        attempt = 1
        while isinstance(outcome := await self._attempt(request), _Failed):
            if attempt == self._attempts or (outcome.retry_after or 0.0) > LONGEST_RETRY_AFTER_SECONDS:
                raise _given_up(request, attempt, self._attempts, outcome) from outcome.cause
            await asyncio.sleep(delay_seconds(attempt, random.random(), outcome.retry_after))
            attempt += 1
        return outcome

    async def _attempt(self, request: _Request) -> Answer | _Failed:
        try:
            async with self._free:
                answer = await self._exchange(request)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return _Failed(error)
        if answer.status in RETRIED:
            if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
                request.reached -= 1  # it was not let in
            after = retry_after_seconds(answer.headers, datetime.now(UTC))
            return _Failed(error_of(answer.status, answer.content), answer.status, after)
        done = 200 <= answer.status < 300 or (request.reached > 1 and answer.status in request.done_before)
        if not done:
            raise error_of(answer.status, answer.content)
        return answer

    async def _exchange(self, request: _Request) -> Answer:
        async with self._opened().request(
            request.method,
            self._base + request.path,
            params=request.query,
            data=request.content or None,
            headers=request.headers,
            allow_redirects=False,
            trace_request_ctx=request,
        ) as response:
            return Answer(response.status, response.headers, await response.read())

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            tracing = aiohttp.TraceConfig()
            tracing.on_request_headers_sent.append(_note_sent)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": JSON, "User-Agent": "carillon-client", **self._headers},
                timeout=aiohttp.ClientTimeout(total=self._timeout_seconds),
                trace_configs=[tracing],
            )
        return self._session

    @asynccontextmanager
    async def _underway(self) -> AsyncIterator[None]:
        if self._closed:
            raise RuntimeError("this client is closed")
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()


def path_of(*segments: str) -> str:
    """The path of these segments. Raises `ValueError` for one that cannot stand there."""
    for segment in segments:
        if _SEGMENT.fullmatch(segment) is None or segment in {".", ".."}:
            raise ValueError(f"a key or an id has 1 to 255 of letters, digits and - _ . ~ :, not {segment!r}")
    return "/" + "/".join(segments)


async def _note_sent(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
    request: _Request = context.trace_request_ctx
    request.reached += 1


def _headers(method: str, content_type: str, idempotency_key: str) -> dict[str, str]:
    headers = {"Content-Type": content_type} if content_type else {}
    if method == "POST":
        headers["Idempotency-Key"] = idempotency_key or str(uuid.uuid4())
    return headers


def _given_up(request: _Request, attempts: int, most: int, last: _Failed) -> Unavailable:
    cause = str(last.cause) or type(last.cause).__name__
    return Unavailable(
        f"gave up {request.method} {request.path} after {attempts} of {most} attempts: {cause}",
        status=last.status,
        retry_after_seconds=last.retry_after,
    )


def _checked_base(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"base_url is like https://carillon.example.com, not {url!r}")
    return url.rstrip("/")


@contextmanager
def _readable(status: int) -> Iterator[None]:
    try:
        yield
    except msgspec.DecodeError as error:
        raise CarillonError(f"the answer cannot be read: {error}", status=status) from error
