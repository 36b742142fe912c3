"""Calls of providers: connections to a host that an account names, POSTs and the default meaning of their answers, and
counts for every kind.

The guard judges the addresses from DNS, and the allowed ones are tried in order.

| answer of a POST | means |
| --- | --- |
| 2xx | accepted |
| 401, 403 | login refused |
| 429, and 503 with `Retry-After` | not now: too fast |
| 503 | not now |
| 408, 303, other 5xx | unanswered: a gateway may have passed the message on |
| the rest | refused |
"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol, TypeVar, assert_never

import msgspec

from shared.core.errors import Unavailable
from shared.drivers.http import Blocked, NotConnected, PostedAnswer, Posting, Unreachable, Withheld
from shared.drivers.http.guard import Guard, block
from shared.messages.rules.answers import (
    Answer,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    LoginRefused,
    NotNow,
    Reason,
)
from shared.providers import BeforeBytes, Content, NotCalled, Provider
from shared.providers.base import tell
from shared.runtime.metrics import PROVIDER_CALL_SECONDS, PROVIDER_CALLS

CONNECT_SECONDS = 5.0  # for one address; a host may have several


async def connect_socket(host: str, port: int, guard: Guard) -> socket.socket:
    """Raises `Blocked` if the host must not be connected to, `OSError` if no address could be."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    objections = [guard.objection(str(info[4][0]), port) for info in found]
    allowed = [info for info, objection in zip(found, objections, strict=True) if objection is None]
    if not allowed:
        raise block(host, objections)
    for info in allowed[:-1]:
        with suppress(OSError, TimeoutError):
            return await _connect(info, guard)
    return await _connect(allowed[-1], guard)


def describe_fault(fault: BaseException) -> str:
    """The fault of a connection, to be read after the server's name."""
    match fault:
        case ssl.SSLCertVerificationError():
            return f"cannot be trusted: {fault.verify_message}"
        case ssl.SSLError():
            return "cannot be trusted: the TLS handshake failed"
        case socket.gaierror():
            return "cannot be found: no DNS server knows the name"
        case TimeoutError():
            return "did not answer in time"
        case OSError():
            # The driver's own text shows the address of the name.
            return f"cannot be connected to: {os.strerror(fault.errno) if fault.errno else 'no connection'}"
        case _:
            return f"cannot be spoken to: {fault}"


async def _connect(info: tuple[object, ...], guard: Guard) -> socket.socket:
    opened = guard.socket(info)
    try:
        opened.setblocking(False)
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(opened, info[4])  # type: ignore[arg-type]
    except BaseException:
        opened.close()
        raise
    return opened


Shape = TypeVar("Shape")
_TEXT_BYTES = 4_096
_UNCLEAR = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.SEE_OTHER})
_STRANGERS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
Judge = Callable[[PostedAnswer], Answer]
"""The meaning of an HTTP answer for a kind of provider."""


class Poster(Protocol):
    """Makes a POST: the process's HTTP client, or an account's own by HTTP/2."""

    async def post(self, posting: Posting) -> PostedAnswer: ...


class Posts:
    def __init__(self, poster: Poster, call_seconds: float) -> None:
        self._poster = poster
        self._call_seconds = call_seconds

    async def post(
        self, url: str, headers: dict[str, str], body: bytes, before_bytes: BeforeBytes, judge: Judge
    ) -> Answer:
        """Make one POST; `judge` translates its answer. Raises `NotCalled`."""
        posting = Posting(url, headers, body, self._call_seconds, before_bytes)
        try:
            return judge(await self._poster.post(posting))
        except Withheld:
            raise NotCalled("withheld") from None
        except (NotConnected, Unavailable) as error:
            return NotNow(str(error))
        except Unreachable as error:
            return CallUnanswered(str(error))
        except Blocked as error:
            # A decision, not an outage: another attempt would change nothing.
            return CallRefused(Reason.OTHER, str(error))


def judge_status(answer: PostedAnswer, to: str, secrets: tuple[str, ...], provider_id: str = "") -> Answer:
    """The meaning of the status alone, with the beginning of the body as detail."""
    status = answer.status
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return CallAccepted(provider_id)
    detail = tell_status(answer, to, secrets)
    if status in _STRANGERS:
        return LoginRefused(detail)
    if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        seconds = answer.retry_after_seconds
        retry_after = None if seconds is None else timedelta(seconds=seconds)
        # A server that says how long it is away means all messages: attempts until then would be wasted.
        too_fast = status == HTTPStatus.TOO_MANY_REQUESTS or retry_after is not None
        return NotNow(detail, too_fast=too_fast, retry_after=retry_after)
    if status in _UNCLEAR or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return CallUnanswered(detail)
    return CallRefused(Reason.REFUSED, detail)


def read_answer(answer: PostedAnswer, shape: type[Shape]) -> Shape:
    """The body's JSON, or the shape's defaults if it cannot be read."""
    try:
        return msgspec.json.decode(answer.body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return shape()


def tell_status(answer: PostedAnswer, to: str, secrets: tuple[str, ...]) -> str:
    return tell(f"HTTP {answer.status}: {text_of(answer)}".rstrip(": "), to, secrets)


def text_of(answer: PostedAnswer) -> str:
    return answer.body[:_TEXT_BYTES].decode(errors="replace")


_UNANSWERED = "unanswered"
OUTCOMES = ("accepted", "refused", "not_now", "too_fast", "login_refused", _UNANSWERED)


class ObservedProvider(Provider):
    """An account whose calls are measured. A call that never began does not count."""

    def __init__(self, provider: Provider, kind: str) -> None:
        self._provider = provider
        self._seconds = PROVIDER_CALL_SECONDS.labels(kind)
        # Prometheus sees a rise only in a series that existed before.
        self._counts = {outcome: PROVIDER_CALLS.labels(kind, outcome) for outcome in OUTCOMES}

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        began = time.perf_counter()
        try:
            answer = await self._provider.send(content, to, key, before_bytes)
        except NotCalled:
            raise
        except Exception:
            self._count(_UNANSWERED, began)
            raise
        self._count(outcome_of(answer), began)
        return answer

    async def close(self) -> None:
        await self._provider.close()

    def _count(self, outcome: str, began: float) -> None:
        self._counts[outcome].inc()
        self._seconds.observe(time.perf_counter() - began)


def outcome_of(answer: Answer) -> str:
    match answer:
        case CallAccepted():
            return "accepted"
        case CallRefused():
            return "refused"
        case NotNow(too_fast=True):
            return "too_fast"
        case NotNow():
            return "not_now"
        case LoginRefused():
            return "login_refused"
        case CallUnanswered():
            return _UNANSWERED
        case _:
            assert_never(answer)
