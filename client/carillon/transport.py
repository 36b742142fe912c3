"""Calls over HTTP: attempts with pauses between, each with a time limit, and an end that waits for what is in flight.

Whether an earlier attempt may have reached the server is known here: the connections tell when a request goes out, also
where they repeat an idempotent one by themselves because a kept connection turned out to be closed.
"""

import random
import threading
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from http import HTTPStatus
from typing import Any, TypedDict, TypeVar
from urllib.parse import quote, urlencode

import httpx
import msgspec
from msgspec import Struct, field

from carillon.attempts import (
    LONGEST_RETRY_AFTER_SECONDS,
    RETRIED_FOR_FILES,
    Failed,
    Query,
    Reached,
    Request,
    check_headers,
    delay_seconds,
    retry_after_seconds,
    split_credentials,
    without_query,
)
from carillon.connections import EXPECT, Connections, Limit, Runtime
from carillon.errors import CarillonError, error_of
from carillon.files import File
from carillon.wire import Result

JSON = "application/json"
NDJSON = "application/x-ndjson"
CSV = "text/csv"

_ALWAYS = {"Accept": JSON, "Accept-Encoding": "gzip", "User-Agent": "carillon-client"}

Content = bytes | AsyncIterator[bytes] | Iterator[bytes]
T = TypeVar("T")


R = TypeVar("R", bound=Result)


class CallOptions(TypedDict, total=False):
    """The options of `Transport.call`."""

    query: Query | None
    content: bytes
    content_type: str
    idempotency_key: str
    reason: str
    done_before: frozenset[int]
    once: bool


class Answer(Struct, frozen=True):
    """An answer that is no error."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def read(self, kind: type[T], floats: Callable[[str], Any] = float) -> T:
        """The body. Raises `CarillonError` if it is not of this kind."""
        with _readable(self.status):
            value: T = _decoder_of(kind, floats).decode(self.content)  # type: ignore[arg-type]  # a type is hashable
        return value

    def read_lines(self, kind: type[R], count: int) -> list[R]:
        """The body, a result a line: one for each of `count` items. As `read`."""
        with _readable(self.status):
            found: list[R] = _decoder_of(kind, float).decode_lines(self.content)
        if [result.index for result in found] != [*range(count)]:
            raise CarillonError("the answer does not tell of every item, in order", status=self.status)
        return found


@cache
def _decoder_of(kind: Any, floats: Callable[[str], Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, float_hook=floats)


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
    """Speaks HTTP to one deployment.

    Raises:
        ValueError: the URL cannot be a base, or a header holds what none can hold.
    """

    def __init__(
        self,
        base_url: str,
        *,
        runtime: Runtime,
        headers: Mapping[str, str],
        timeout_seconds: float,
        attempts: int,
        connections: int,
    ) -> None:
        self._base, credentials = split_credentials(base_url)
        if credentials.keys() & headers.keys():
            raise ValueError("either a token or a user and a password in base_url, not both")
        self._headers = check_headers({**credentials, **headers})
        self._timeout_seconds = timeout_seconds
        self._attempts = attempts
        self.runtime = runtime
        # A call that waits for a connection waits here, outside the time-out of an attempt.
        self._free = runtime.slots(connections)
        self._connections = Connections(runtime)
        self._lock = threading.Lock()
        self._closed = False
        self._in_flight = 0
        self._idle = runtime.signal()
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
        reason: str = "",
        done_before: frozenset[int] = frozenset(),
        once: bool = False,
    ) -> Answer:
        """The answer. A status in `done_before` is one, and no error, where an earlier attempt of this call may have
        reached the server: it tells that that one was successful. A call that must not be done twice, and that the
        server would do twice, is attempted `once`: no attempt follows one that may have reached the server.

        Raises:
            CarillonError: the answer is an error, or there is none after all attempts (`Unavailable`).
            ValueError: a header cannot contain the key.
        """
        request = Request(
            method=method,
            url=self._base + path,
            query=query or {},
            content=content,
            headers={**self._headers, **_headers(method, content_type if content else "", idempotency_key, reason)},
            done_before=done_before,
            once=once,
        )
        with self._underway():
            return await self._answer(request)

    async def send_file(self, method: str, path: str, query: Query, file: File) -> Answer:
        """The answer to a call whose body is a file, which is read again from its start on each attempt.

        Raises:
            CarillonError: as `call`; `Invalid` where the file changed meanwhile.
            OSError: the file cannot be read.
        """
        headers = {"Content-Type": CSV, "Content-Length": str(file.size)}
        request = Request(
            method=method, url=self._base + path, query=query, content=file, headers={**self._headers, **headers}
        )
        with self._underway():
            return await self._persistent(partial(self._send_once, request, file))

    async def upload(self, path: str, url_of: Callable[[Answer], str], file: File) -> Answer:
        """Send the file to the URL that the answer to GET of `path` tells, and give that answer.

        Each attempt asks for another URL, because they expire, and sends nothing that tells who is asking. To ask is a
        call with attempts of its own: n attempts to send are at most n² to ask. If asking fails, so does the upload.

        Raises:
            CarillonError: as `call`; `Invalid` where the file changed meanwhile.
            OSError: the file cannot be read.
        """
        asking = Request(method="GET", url=self._base + path, headers=self._headers)
        upload = _Upload(asking=asking, url_of=url_of, file=file)
        with self._underway():
            return await self._persistent(partial(self._put, upload))

    async def close(self) -> None:
        """Refuse new calls, wait for those in flight, and close the connections."""
        with self._lock:
            self._closed = True
        try:
            await self._idle.wait()
        finally:
            await self._connections.close()

    async def _answer(self, request: Request) -> Answer:
        return await self._persistent(partial(self._attempt, request))

    async def _persistent(self, once: Callable[[], Awaitable[Answer | Failed]]) -> Answer:
        attempt = 1
        while isinstance(outcome := await once(), Failed):
            last = attempt == self._attempts or (outcome.retry_after or 0.0) > LONGEST_RETRY_AFTER_SECONDS
            if last or not outcome.repeatable:
                raise outcome.given_up(attempt, self._attempts) from outcome.cause
            await self.runtime.sleep(delay_seconds(attempt, random.random(), outcome.retry_after))
            attempt += 1
        return outcome

    async def _put(self, upload: _Upload) -> Answer | Failed:
        """One attempt of an upload; its answer is the place."""
        place = await self._answer(upload.asking)
        outcome = await self._send_once(upload.sending(place), upload.file)
        return outcome if isinstance(outcome, Failed) else place

    async def _send_once(self, request: Request, file: File) -> Answer | Failed:
        outcome = await self._attempt(request)
        file.check()
        return outcome

    async def _attempt(self, request: Request) -> Answer | Failed:
        try:
            async with self._free:
                answer = await self._exchange(request)
        except (httpx.InvalidURL, OSError) as error:  # a time-out is an OSError, too
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
        async with self.runtime.limit(self._timeout_seconds) as limit:
            if not isinstance(request.content, File):
                return await self._send(request, request.content, request.headers, limit)
            # A server that refuses a file then says so before it is sent; a later attempt does not wait for a consent
            # that some servers never give.
            asks = request.content.size > 0 and request.reached.attempts == 0
            async with aclosing(self._read_parts(request.content, limit)) as parts:
                content = self.runtime.content(parts)
                return await self._send(request, content, {**request.headers, **(EXPECT if asks else {})}, limit)

    async def _send(self, request: Request, content: Content, headers: Mapping[str, str], limit: Limit) -> Answer:
        message = httpx.Request(
            request.method,
            request.url + (f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""),
            headers=httpx.Headers({**_ALWAYS, **headers}, encoding="utf-8"),
            content=content or None,
        )
        if not message.url.host:
            raise httpx.InvalidURL("the URL names no host")
        repeatable = isinstance(content, bytes)
        answer = await self._connections.exchange(message, request.reached.count, limit, repeatable=repeatable)
        return Answer(answer.status_code, answer.headers, answer.content)

    async def _read_parts(self, file: File, limit: Limit) -> AsyncGenerator[bytes]:
        """The parts of a file; the time limit counts from each of them anew."""
        async with aclosing(file.parts(self.runtime)) as parts:
            async for part in parts:
                limit.restart()
                yield part

    @contextmanager
    def _underway(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise RuntimeError("this client is closed")
            self._in_flight += 1
            self._idle.clear()
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1
                if self._in_flight == 0:
                    self._idle.set()


def _headers(method: str, content_type: str, idempotency_key: str, reason: str) -> Mapping[str, str]:
    headers = {"Content-Type": content_type} if content_type else {}
    headers |= {"x-carillon-reason": reason} if reason else {}
    if method == "POST":
        headers["Idempotency-Key"] = idempotency_key or str(uuid.uuid4())
    return check_headers(headers)


@contextmanager
def _readable(status: int) -> Iterator[None]:
    try:
        yield
    except msgspec.DecodeError as error:
        raise CarillonError(f"the answer cannot be read: {error}", status=status) from error
