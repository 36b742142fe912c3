"""Providers that are called by HTTP: one POST per message, and the default meaning of its answer.

| answer | means |
| --- | --- |
| 2xx | accepted |
| 401, 403 | login refused |
| 429, and 503 with `Retry-After` | not now: too fast |
| 503 | not now |
| 408, 303, other 5xx | unanswered: a gateway may have passed the message on |
| the rest | refused |
"""

from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol, TypeVar

import msgspec

from shared.domain.errors import Unavailable
from shared.domain.messages.answers import (
    Answer,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    LoginRefused,
    NotNow,
    Reason,
)
from shared.outgoing import Blocked, NotConnected, PostedAnswer, Posting, Unreachable, Withheld
from shared.providers import BeforeBytes, NotCalled
from shared.providers.details import tell

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
    """The POSTs of one account."""

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
        retry_after = _retry_after(answer)
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
    """The status and the beginning of the body, without secrets and addresses."""
    return tell(f"HTTP {answer.status}: {text_of(answer)}".rstrip(": "), to, secrets)


def text_of(answer: PostedAnswer) -> str:
    """The beginning of the body; bytes that are no text are replaced."""
    return answer.body[:_TEXT_BYTES].decode(errors="replace")


def _retry_after(answer: PostedAnswer) -> timedelta | None:
    seconds = answer.retry_after_seconds
    return None if seconds is None else timedelta(seconds=seconds)
