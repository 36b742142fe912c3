"""HTTP calls to servers of others: one request, one answer, and nothing that they could use against Carillon.

- **Only the Internet is called**, and networks that the deployment allows (`guard.py`). An address is judged as
  written, after DNS, and once more when the socket is made. Redirects are answers, never followed. Proxies, credentials
  of the environment and cookies are not used.
- **Carillon vouches for no caller.** Headers that tell a receiver who is asking are not sent, even if a stored call has
  them, and Carillon's own API is not called.
- **A call ends.** `timeout_seconds` covers all of it: waiting for a connection, DNS, TLS, the request, the status. So
  `connections` should be at least the number of simultaneous calls.
- **The status is the answer**, whatever the other fields of its head say. A head has at most 64 KiB. At most 2 KiB of
  the body are read, for at most 2 s within the same time-out; nothing there changes the answer. A longer body, or bytes
  after it, cost the connection.
- **Nothing is retried, with one exception**: aiohttp sends a GET, PUT or DELETE once more, with the same message id, if
  its connection ends without an answer, because a kept one may have been closed just then.
- **A missing answer proves nothing**: after `Unreachable` the receiver may have had the call, after `Blocked` not.

A `Posting` is a message, so it is stricter. It leaves at most once, whatever happens to connections. Its sender is
asked right before the bytes are written, when a connection is ready, and may withhold it. It brings all its headers,
and returns the raw beginning of the answer's body.

The texts of errors are for users: they name the host and the reason, never the path, a header or a resolved address.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from msgspec import Struct

from shared.core.errors import CarillonError
from shared.runtime.cached import Late


class Blocked(CarillonError):
    """The target must not be called, and was not: its address is guarded, or its URL is invalid."""


class Unreachable(CarillonError):
    """The target gave no answer: it cannot be found, connected to or trusted, or it broke off or took too long."""


class NotConnected(Unreachable):
    """No connection was made in time: the target received no byte of the posting."""


class Withheld(CarillonError):
    """The sender withheld the posting: the target received no byte of it."""


class Call(Struct, frozen=True):
    """One request. URL, method, headers and secrets have passed `checks` and `signing`; `headers` may contain
    carillon-*.

    `timestamp` is this attempt's, in epoch seconds; `message_id` is the same on every attempt. `owner` is charged for
    the call: many calls of one owner to names without an answer hold up no other owner.
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
        """Show no secret, header or path: this text ends in logs and tracebacks."""
        return f"Call({self.method}, message_id={self.message_id!r})"


class Answer(Struct, frozen=True):
    """The receiver's answer. `excerpt` is the beginning of the body, on one line, for error messages."""

    status: int
    retry_after_seconds: float | None
    excerpt: str

    @property
    def accepted(self) -> bool:
        """Any 2xx: the receiver has taken the message."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


class Posting(Struct, frozen=True):
    """One POST, or another `method`. The URL has passed `checks`; the default content type is JSON.

    `before_bytes` is asked once, when a connection is ready; it neither waits nor raises. `timeout_seconds` covers the
    whole call.
    """

    url: str
    headers: dict[str, str]
    body: bytes
    timeout_seconds: float
    before_bytes: Callable[[], bool]
    method: str = "POST"

    def __repr__(self) -> str:
        """Show nothing, as in `Call`."""
        return "Posting()"


class PostedAnswer(Struct, frozen=True):
    """The answer to a posting. `body` is the first 16 KiB at most, less if the connection broke; names of `headers`
    are in lower case."""

    status: int
    retry_after_seconds: float | None
    headers: dict[str, str]
    body: bytes


class Outgoing(Protocol):
    async def call(self, request: Call) -> Answer:
        """Make one call; any status is an answer.

        Raises:
            Unreachable: there was no answer; the receiver may have had the call.
            Blocked: the target must not be called, and was not.
            Unavailable: this process could not look the name up in time, or has no file left for a connection. The
                target was not called.
        """

    async def post(self, posting: Posting) -> PostedAnswer:
        """Send one posting at most once; any status is an answer.

        Raises:
            Withheld: the sender withheld it when a connection was ready; not a byte has left.
            NotConnected: there was no connection; not a byte has left.
            Unreachable: there was no answer; the receiver may have had the posting.
            Blocked: the target must not be called, and was not.
        """

    async def close(self) -> None: ...


class LateOutgoing:
    def __init__(self, load: Callable[[], Callable[[], Outgoing]]) -> None:
        self._late = Late("the HTTP client", load)

    async def call(self, request: Call) -> Answer:
        return await (await self._late.get()).call(request)

    async def post(self, posting: Posting) -> PostedAnswer:
        return await (await self._late.get()).post(posting)

    async def close(self) -> None:
        await self._late.close()
