"""A request before it is sent: its address, and the attempts at it. No error shows the query of a signed URL."""

import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field

from carillon.errors import Unavailable
from carillon.files import File

RETRIED = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
RETRIED_FOR_FILES = RETRIED | {HTTPStatus.INTERNAL_SERVER_ERROR}
"""S3 asks to be asked again after its `InternalError`, and a file that was stored all the same does no harm."""
FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 10.0
LONGEST_RETRY_AFTER_SECONDS = 60.0
"""A server that asks for a longer pause gets no further attempt of this call: its caller knows better what to do."""
_SECONDS = re.compile(r"[0-9]{1,9}")


def delay_seconds(attempt: int, rand: float, retry_after: float | None = None) -> float:
    """The pause after the given attempt (1 is the first): a share `rand` (0 to 1) of a bound that doubles, and before
    it what the server asked for."""
    bound = min(FIRST_DELAY_SECONDS * 2.0 ** min(attempt - 1, 30), LONGEST_DELAY_SECONDS)
    return (retry_after or 0.0) + rand * bound


def retry_after_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """The seconds that `Retry-After` asks for (RFC 9110, 10.2.3), or `None`; a date counts from the answer's own
    `Date`, by the server's clock, or else from `now`."""
    text = headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    until = _instant(text)
    if until is None:
        return None
    return max((until - (_instant(headers.get("Date", "")) or now)).total_seconds(), 0.0)


def _instant(text: str) -> datetime | None:
    try:
        read = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


Query = Mapping[str, str]


class Reached(Struct):
    """How many attempts of a call may have reached the server, the running one included."""

    attempts: int = 0

    def count(self) -> None:
        self.attempts += 1


class Request(Struct, frozen=True, kw_only=True):
    """A request to be sent. A `signed` URL is as good as a password. `retried` are the statuses that are worth another
    attempt; `done_before` are those that mean success behind an attempt that may have reached the server. A request to
    be sent `once` is not sent again behind such an attempt."""

    method: str
    url: str
    signed: bool = False
    query: Query = {}
    content: bytes | File = b""
    headers: Mapping[str, str]
    retried: frozenset[int] = RETRIED
    done_before: frozenset[int] = frozenset()
    once: bool = False
    reached: Reached = field(default_factory=Reached)


class Failed(Struct, frozen=True):
    """An attempt that failed in a way that passes."""

    request: Request
    cause: Exception
    status: int | None = None
    retry_after: float | None = None

    @property
    def repeatable(self) -> bool:
        """Whether another attempt does no harm."""
        return not self.request.once or self.request.reached.attempts == 0

    def given_up(self, attempts: int, most: int) -> Unavailable:
        """The error that it is when no other attempt follows."""
        cause = str(self.cause) or type(self.cause).__name__
        url = urlsplit(self.request.url)  # what may stand before the host is as good as a password, too
        where = url.netloc.rpartition("@")[2] + url.path
        return Unavailable(
            f"gave up {self.request.method} {where} after {attempts} of {most} attempts: {cause}",
            status=self.status,
            retry_after_seconds=self.retry_after,
        )


def without_query(error: Exception) -> OSError:
    """An error behind a signed URL, without the query. A library may write the URL into its own error, or chain one."""
    return OSError(f"{type(error).__name__}: {error}".partition("?")[0].removesuffix(": "))


# Keys, ids and timestamps. Anything else would lead to another path: a slash even when it is quoted.
_SEGMENT = re.compile(r"[A-Za-z0-9\-_.~:]{1,255}")
_HEADER = re.compile(r"(?! )[^\x00-\x1f\x7f]*(?<! )")


def split_credentials(url: str) -> tuple[str, dict[str, str]]:
    """The base URL without a user and a password before its host, and the header that these are.

    Raises:
        ValueError: it is no base URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"base_url is like https://carillon.example.com, not {url!r}")
    credentials, _, host = parts.netloc.rpartition("@")
    header = {"Authorization": _basic(credentials)} if credentials else {}
    return parts._replace(netloc=host).geturl().rstrip("/"), header


def path_of(*segments: str) -> str:
    """The path of these segments. Raises `ValueError` for one that a path cannot contain."""
    for segment in segments:
        if _SEGMENT.fullmatch(segment) is None or segment in {".", ".."}:
            raise ValueError(f"a key or an id has 1 to 255 of letters, digits and - _ . ~ :, not {segment!r}")
    return "/" + "/".join(segments)


def query_of(**parameters: str) -> Query:
    """The query of those parameters that are given."""
    return {name: text for name, text in parameters.items() if text}


def check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The same headers. Raises `ValueError`, which shows no secret, for a value that a header cannot contain."""
    for name, text in headers.items():
        if _HEADER.fullmatch(text) is None:
            raise ValueError(f"{name}: a header holds no control characters, and no space at its ends")
    return headers


def _basic(credentials: str) -> str:
    user, _, password = credentials.partition(":")
    return "Basic " + b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
