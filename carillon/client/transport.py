"""Calls over HTTP: a bounded pool of connections, attempts with pauses between, and an end that waits for what is in
flight.

Whether an earlier attempt may have reached the server is known here: aiohttp tells when the head of a request has
gone out, also where it repeats an idempotent request by itself because a kept connection turned out to be closed.
"""

import asyncio
import random
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec import Struct, field

from carillon.client.attempts import Failed, Query, Reached, Request, without_query
from carillon.client.errors import CarillonError, error_of
from carillon.client.files import File
from carillon.client.retries import LONGEST_RETRY_AFTER_SECONDS, RETRIED_FOR_FILES, delay_seconds, retry_after_seconds

JSON = "application/json"
NDJSON = "application/x-ndjson"
CSV = "text/csv"

# Keys, ids and timestamps. Anything else would lead to another path: a slash even when it is quoted.
_SEGMENT = re.compile(r"[A-Za-z0-9\-_.~:]{1,255}")

T = TypeVar("T")


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


class _Upload(Struct, frozen=True, kw_only=True):
    """A file on its way. Each attempt asks for a place of its own, and `url_of` tells where the answer says it is."""

    asking: Request
    url_of: Callable[[Answer], str]
    file: File
    reached: Reached = field(default_factory=Reached)

    def sending(self, place: Answer) -> Request:
        return Request(
            method="PUT",
            url=self.url_of(place),
            signed=True,
            content=self.file,
            headers={"Content-Type": CSV, "Content-Length": str(self.file.size)},
            retried=RETRIED_FOR_FILES,
            reached=self.reached,
        )


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
        request = Request(
            method=method,
            url=self._base + path,
            query=query or {},
            content=content,
            headers=self._headers | _headers(method, content_type if content else "", idempotency_key),
            done_before=done_before,
        )
        async with self._underway():
            return await self._answer(request)

    async def upload(self, path: str, url_of: Callable[[Answer], str], file: File) -> Answer:
        """Send the file to the URL that the answer to GET of `path` tells, and give that answer.

        Each attempt asks for another URL, because they expire, and sends nothing that tells who is asking. To ask is a
        call with attempts of its own: n attempts to send are at most n² to ask. Where it fails, so does the upload.

        Raises:
            CarillonError: as `call`; `Invalid` where the file changed meanwhile.
            OSError: the file cannot be read.
        """
        asking = Request(method="GET", url=self._base + path, headers=self._headers)
        upload = _Upload(asking=asking, url_of=url_of, file=file)
        async with self._underway():
            return await self._persistent(partial(self._put, upload))

    async def close(self) -> None:
        """Refuse new calls, wait for those in flight, and close the connections."""
        self._closed = True
        try:
            await self._idle.wait()
        finally:
            if self._session is not None:
                await self._session.close()

    async def _answer(self, request: Request) -> Answer:
        return await self._persistent(partial(self._attempt, request))

    async def _persistent(self, once: Callable[[], Awaitable[Answer | Failed]]) -> Answer:
        attempt = 1
        while isinstance(outcome := await once(), Failed):
            if attempt == self._attempts or (outcome.retry_after or 0.0) > LONGEST_RETRY_AFTER_SECONDS:
                raise outcome.given_up(attempt, self._attempts) from outcome.cause
            await asyncio.sleep(delay_seconds(attempt, random.random(), outcome.retry_after))
            attempt += 1
        return outcome

    async def _put(self, upload: _Upload) -> Answer | Failed:
        """One attempt of an upload; its answer is the place."""
        place = await self._answer(upload.asking)
        outcome = await self._attempt(upload.sending(place))
        upload.file.check()
        return outcome if isinstance(outcome, Failed) else place

    async def _attempt(self, request: Request) -> Answer | Failed:
        try:
            async with self._free:
                answer = await self._exchange(request)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return Failed(request, without_query(error) if request.signed else error)
        if answer.status in request.retried:
            if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
                request.reached.attempts -= 1  # it was not let in
            after = retry_after_seconds(answer.headers, datetime.now(UTC))
            return Failed(request, error_of(answer.status, answer.content), answer.status, after)
        done = 200 <= answer.status < 300 or (request.reached.attempts > 1 and answer.status in request.done_before)
        if not done:
            raise error_of(answer.status, answer.content)
        return answer

    async def _exchange(self, request: Request) -> Answer:
        file = request.content if isinstance(request.content, File) else None
        async with (
            asyncio.timeout(self._timeout_seconds) as limit,
            self._opened().request(
                request.method,
                request.url,
                params=request.query,
                data=request.content or None if file is None else self._read_parts(file, limit),
                headers=request.headers,
                # Who refuses a file then says so before it is sent; a later attempt does not wait for a consent that
                # some servers never give.
                expect100=file is not None and request.reached.attempts == 0,
                allow_redirects=False,
                trace_request_ctx=request,
            ) as response,
        ):
            return Answer(response.status, response.headers, await response.read())

    async def _read_parts(self, file: File, limit: asyncio.Timeout) -> AsyncIterator[bytes]:
        """The parts of a file; the time limit counts from each of them anew."""
        async for part in file.parts():
            limit.reschedule(asyncio.get_running_loop().time() + self._timeout_seconds)
            yield part

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            tracing = aiohttp.TraceConfig()
            tracing.on_request_headers_sent.append(_note_sent)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": JSON, "User-Agent": "carillon-client"},
                timeout=aiohttp.ClientTimeout(total=None),
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


def query_of(**parameters: str) -> Query:
    """The query of those parameters that are given."""
    return {name: text for name, text in parameters.items() if text}


async def _note_sent(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
    request: Request = context.trace_request_ctx
    request.reached.attempts += 1


def _headers(method: str, content_type: str, idempotency_key: str) -> dict[str, str]:
    headers = {"Content-Type": content_type} if content_type else {}
    if method == "POST":
        headers["Idempotency-Key"] = idempotency_key or str(uuid.uuid4())
    return headers


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
