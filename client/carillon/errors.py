"""Every error that the client raises for an answer, as one tree. A mistake that shows before anything is sent (an
instant without a zone, a key that a path cannot contain) is a `ValueError` instead.

```
CarillonError
├── Invalid        a field breaks a rule (400, 413, 422); `field` names it
├── Unauthorized   the caller is unknown (401)
├── Forbidden      the caller may not do this (403)
├── NotFound       there is no such thing (404) or method (405), or it is kept no longer (410)
├── Conflict       the key is taken by another content (409), or the state does not allow it (409; 403 for the moves
│                  of a job)
└── Unavailable    no answer after all attempts; what was asked may have happened
```
"""

import html
import re
from http import HTTPStatus

import msgspec
from msgspec import Struct


class CarillonError(Exception):
    """The root; itself, it is an unexpected answer. `status` is the HTTP status, `None` without an answer;
    `field` the input that is wrong, if it is one."""

    def __init__(self, reason: str, *, status: int | None = None, field: str | None = None) -> None:
        is_named = not field or re.search(rf"(?<![\w.]){re.escape(field)}(?!\w)", reason)
        super().__init__(reason if is_named else f"{field}: {reason}")
        self.reason = reason
        self.status = status
        self.field = field


class Invalid(CarillonError):
    """The named field breaks the rule that `reason` tells. Nothing has changed."""


class Unauthorized(CarillonError):
    """No credentials, or unknown ones."""


class Forbidden(CarillonError):
    """The caller is known but may not do this."""


class NotFound(CarillonError):
    """There is no such thing, it is another caller's, the server is too old to know the method (`status` 405), or it is
    kept no longer (410)."""


class Conflict(CarillonError):
    """Another thing holds the unique value, or the state of the thing does not allow it. Marathon's routes to
    pause, resume and stop a job answer the latter with 403 and the field `status`."""


class Unavailable(CarillonError):
    """Given up after all attempts; the last cause is `__cause__`. The server may have done what was asked.

    `retry_after_seconds` is what the server asked for last, if it did.
    """

    def __init__(self, reason: str, *, status: int | None = None, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason, status=status)
        self.retry_after_seconds = retry_after_seconds


_KINDS: dict[int, type[CarillonError]] = {
    HTTPStatus.BAD_REQUEST: Invalid,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Invalid,
    HTTPStatus.UNPROCESSABLE_ENTITY: Invalid,
    HTTPStatus.UNAUTHORIZED: Unauthorized,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.METHOD_NOT_ALLOWED: NotFound,
    HTTPStatus.GONE: NotFound,
    HTTPStatus.CONFLICT: Conflict,
}


class _Problem(Struct, frozen=True):
    """The fields that are read of a problem document (RFC 9457)."""

    reason: str = ""
    detail: str = ""
    field: str | None = None


_decoder = msgspec.json.Decoder(_Problem)
_OF_S3 = (re.compile(rb"<Code>([^<]+)</Code>"), re.compile(rb"<Message>([^<]*)</Message>"))


def error_of(status: int, content: bytes) -> CarillonError:
    """The error of an answer. S3 answers in its own way, and a proxy may have answered
    without a problem document."""
    try:
        problem = _decoder.decode(content)
    except msgspec.DecodeError:
        problem = _Problem(_reason_of_s3(content))
    reason = problem.reason or problem.detail or f"answered with {status} {_phrase(status)}".rstrip()
    is_move = status == HTTPStatus.FORBIDDEN and problem.field == "status"
    kind = Conflict if is_move else _KINDS.get(status, CarillonError)
    return kind(reason, status=status, field=problem.field)


def _reason_of_s3(content: bytes) -> str:
    code, message = (part.search(content) for part in _OF_S3)
    if b"<Error>" not in content or code is None or message is None:
        return ""
    return ": ".join(html.unescape(found[1].decode(errors="replace")) for found in (code, message))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
