"""The attempts of an HTTP call, and the errors of those that failed. No error shows the query of a signed URL."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct, field

from carillon.errors import Unavailable
from carillon.files import File
from carillon.retries import RETRIED

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
