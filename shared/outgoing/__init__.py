"""HTTP calls to other people's servers: one request, one answer, nothing that they could use against us.

- **Only the Internet is called**, and what the deployment allows (`guard.py`): an address is judged where it is
  written, after DNS, and once more where the socket is made. Redirects are answers like any other, never followed.
  Proxies, credentials of the environment and cookies are not used.
- **We vouch for nobody.** Headers that tell a receiver who is asking are not sent, even where a call was stored with
  them, and our own API is not called.
- **A call ends.** `timeout_seconds` is the whole of it: waiting for a free connection, DNS, TLS, the request, the
  status. So `connections` should be no fewer than the calls that are made at once.
- **The status is the answer**, whatever the fields of its head say. A head has at most 64 KiB. At most 2 KiB of the
  body are read, for at most 2 s within the same time-out, and nothing that happens there changes what was answered. A
  longer body, or bytes behind it, cost the connection.
- **Nothing is retried, but for one case**: aiohttp sends a GET, PUT or DELETE once more, with the same message id, if
  its connection ends without an answer, because a kept one may have been closed just then.
- **A missing answer proves nothing**: after `Unreachable` the receiver may have had the call, after `Blocked` not.

A `Posting` is stricter, because it is a message to somebody: it leaves at most once, whatever happens to connections;
its sender is asked right before the bytes are written, with a connection in hand, and may withhold it; and it brings
all its headers, and the beginning of the answer's body as it came.

The texts of the errors are for our users: they tell the host and why, never the path, a header or an address behind a
name.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from msgspec import Struct

from shared.domain.errors import CarillonError
from shared.outgoing.guard import Blocked, OwnApi

__all__ = [
    "Answer",
    "Blocked",
    "Call",
    "NotConnected",
    "Outgoing",
    "OwnApi",
    "PostedAnswer",
    "Posting",
    "Unreachable",
    "Withheld",
]


class Unreachable(CarillonError):
    """The target gave no answer: it cannot be found, connected to or trusted, or it broke off or took too long."""


class NotConnected(Unreachable):
    """There was no connection, or not in time: the target has not had a byte of the posting."""


class Withheld(CarillonError):
    """The sender wants the posting no more: the target has not had a byte of it."""


class Call(Struct, frozen=True):
    """One request. URL, method, headers and secrets have passed `checks` and `signing`; `headers` may bring carillon-*.

    `timestamp` is that of this attempt, in epoch seconds; `message_id` is the same on every attempt. `owner` is on
    whose behalf it is made: who owns many calls to names that give no answer holds up no other owner.
    """

    url: str
    method: str
    headers: dict[str, str]
    body: bytes
    message_id: str
    timestamp: int
    secrets: tuple[str, ...] = ()
    owner: str = ""

    def __repr__(self) -> str:
        """No secret, and no header or path, which may hold one: this ends in logs and tracebacks."""
        return f"Call({self.method}, message_id={self.message_id!r})"


class Answer(Struct, frozen=True):
    """The receiver's answer. `excerpt` is the beginning of the body, on one line, for error messages."""

    status: int
    retry_after_seconds: float | None
    excerpt: str

    @property
    def accepted(self) -> bool:
        """The receiver has taken the message: any 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


class Posting(Struct, frozen=True):
    """One POST, or whatever `method` says. The URL has passed `checks`; without a content type of its own it is JSON.

    `before_bytes` is asked once, with a connection in hand; it neither waits nor raises. `timeout_seconds` is the whole
    of the call.
    """

    url: str
    headers: dict[str, str]
    body: bytes
    timeout_seconds: float
    before_bytes: Callable[[], bool]
    method: str = "POST"

    def __repr__(self) -> str:
        """Nothing of it, as in `Call`."""
        return "Posting()"


class PostedAnswer(Struct, frozen=True):
    """The answer to a posting. `body` is the beginning of its body, at most 16 KiB, and less where it broke off; the
    names of `headers` are in lower case."""

    status: int
    retry_after_seconds: float | None
    headers: dict[str, str]
    body: bytes


class Outgoing(Protocol):
    """The HTTP client of a process."""

    async def call(self, request: Call) -> Answer:
        """Make one call and tell how it was answered, whatever the status.

        Raises:
            Unreachable: there was no answer; the receiver may have had the call.
            Blocked: the target must not be called, and was not.
            Unavailable: this process could not look its name up in time, or has no file left for a connection. It was
                not called, and that says nothing about it.
        """

    async def post(self, posting: Posting) -> PostedAnswer:
        """Have one posting leave at most once, and tell how it was answered, whatever the status.

        Raises:
            Withheld: its sender did not want it any more, with a connection in hand; not a byte has left.
            NotConnected: there was no connection; not a byte has left.
            Unreachable: there was no answer; the receiver may have had the posting.
            Blocked: the target must not be called, and was not.
        """

    async def close(self) -> None:
        """End the connections."""
