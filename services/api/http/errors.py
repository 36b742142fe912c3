"""Errors as answers: a status, a text that says what to do, and the id of the request; and the ids that the API makes.

Callers find a request by its id in the logs and in the audit.
"""

import os
import re
import secrets
from contextvars import ContextVar, Token
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, InternalServerException
from litestar.types import Send
from msgspec import Struct
from structlog.contextvars import STRUCTLOG_KEY_PREFIX

from shared.core.errors import (
    Conflict,
    Denied,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Refused,
    TooMany,
    Unauthorized,
    Unavailable,
)
from shared.core.ids import time_ordered_id

log = structlog.get_logger(__name__)


def fresh_id(now: int) -> str:
    """A new id, which sorts after those of earlier instants (ns)."""
    return time_ordered_id(now, secrets.randbits(62))


REQUEST_ID_HEADER = "x-request-id"
_VALID = re.compile(r"[A-Za-z0-9._~:+=/\-]{1,128}")
_BYTES = 16
# structlog finds it by its name and puts it into each line. To bind it there would take ten times as long.
_current: ContextVar[str] = ContextVar(f"{STRUCTLOG_KEY_PREFIX}request_id", default="")


def current_request_id() -> str:
    """The id of this task's request; `""` if it has none."""
    return _current.get()


def bear_request_id(scope: Any) -> Token[str]:
    """Choose the id of a request. This task and its log lines have it until `drop_request_id`."""
    given = sole_header(scope, REQUEST_ID_HEADER)
    return _current.set(given if _VALID.fullmatch(given) else os.urandom(_BYTES).hex())


def drop_request_id(token: Token[str]) -> None:
    _current.reset(token)


def sole_header(scope: Any, name: str) -> str:
    """The value of a header that occurs once in a request; `""` for none and for several."""
    found = header_values(scope, name.encode())
    return found[0] if len(found) == 1 else ""


def header_values(scope: Any, name: bytes) -> list[str]:
    """All values of a header, given in lower case as the server passes it on. Litestar's object of all headers costs
    ten times as much."""
    return [str(value, "latin-1") for header, value in scope["headers"] if header == name]


def header_text(header: str) -> str:
    """A header as its sender wrote it: HTTP reads Latin-1, but programs write UTF-8."""
    return header.encode("latin-1", "replace").decode("utf-8", "replace")


PROBLEM = "application/problem+json"
RETRY_AFTER_SECONDS = 2
SHOWN_CHARACTERS = 256
_CLIENT_LEFT = "client disconnected prematurely"  # Litestar calls that a fault of the server


class Misdirected(Refused):
    """The request names a host that this API does not answer to."""


class BadInput(Refused):
    """The same as `Invalid` on the routes that Routemaster's clients know (400)."""


class BasicNeeded(Unauthorized):
    """An unknown caller of a route whose callers show a token by basic auth."""


STATUS: dict[type[Exception], HTTPStatus] = {
    Invalid: HTTPStatus.UNPROCESSABLE_ENTITY,
    BadInput: HTTPStatus.BAD_REQUEST,
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    Forbidden: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    Gone: HTTPStatus.GONE,
    Conflict: HTTPStatus.CONFLICT,
    Misdirected: HTTPStatus.MISDIRECTED_REQUEST,
    TooMany: HTTPStatus.TOO_MANY_REQUESTS,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
_HEADERS: dict[HTTPStatus, dict[str, str]] = {
    HTTPStatus.UNAUTHORIZED: {"www-authenticate": 'Bearer realm="carillon"'},
    HTTPStatus.SERVICE_UNAVAILABLE: {"retry-after": str(RETRY_AFTER_SECONDS)},
}
_SERVERS = {
    "store": "MongoDB",
    "broker": "RabbitMQ",
    "stream": "Kafka",
    "audience": "PostgreSQL, which holds the push tables,",
    "blobs": "the store of files",
    "mail": "the mail server",
}
"""The servers, for people."""
_BASIC = {"www-authenticate": 'Basic realm="carillon", charset="UTF-8"'}
_DETAILS: dict[HTTPStatus, str] = {
    HTTPStatus.BAD_REQUEST: "the request ended too early",
    HTTPStatus.NOT_FOUND: "there is nothing at this path",
    HTTPStatus.METHOD_NOT_ALLOWED: "this path does not answer this method",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "the body is larger than this server takes",
    HTTPStatus.SERVICE_UNAVAILABLE: "a server that is needed did not answer; what was asked may have happened",
    HTTPStatus.INTERNAL_SERVER_ERROR: "something went wrong here; the logs tell more",
}


class Problem(Struct, frozen=True, kw_only=True):
    """A problem document. `reason` says the same as `detail`; `field` names the input that is wrong, `value` what it
    was. `requestId` names the request in the logs and in the audit."""

    title: str
    status: int
    detail: str
    reason: str
    type: str = "about:blank"
    field: str | None = None
    value: Any = None
    request_id: str = msgspec.field(default="", name="requestId")


def problem_of(error: Exception) -> Problem:
    status = _status(error)
    detail = _detail(error, status)
    field, value = (error.field, error.value) if isinstance(error, Refused) else (None, None)
    return Problem(
        title=status.phrase,
        status=status,
        detail=detail,
        reason=detail,
        field=_shorten(field),
        value=_shorten(value),
        request_id=current_request_id(),
    )


def headers_of(problem: Problem, error: Exception) -> dict[str, str]:
    allow = (isinstance(error, HTTPException) and error.headers) or {}
    own = {"allow": allow["allow"]} if "allow" in allow else {}
    if isinstance(error, TooMany):
        own["retry-after"] = str(error.retry_after_seconds)
    if isinstance(error, BasicNeeded):
        return own | _BASIC
    return own | _HEADERS.get(HTTPStatus(problem.status), {})


def refuse(_: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Answer with the problem, and log it if it is not the caller's fault."""
    problem = problem_of(error)
    report(problem, error)
    return Response(
        content(problem), status_code=problem.status, media_type=PROBLEM, headers=headers_of(problem, error)
    )


async def send(error: Exception, send: Send) -> None:
    problem = problem_of(error)
    report(problem, error)
    body = content(problem)
    headers = {"content-type": PROBLEM, "content-length": str(len(body))} | headers_of(problem, error)
    await send(
        {
            "type": "http.response.start",
            "status": problem.status,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})


def report(problem: Problem, error: Exception) -> None:
    """Log a failure of this process, or of a server that it needs."""
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("request failed", exc_info=error)
    elif problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        log.warning("a server is unavailable", reason=str(error))


def content(problem: Problem) -> bytes:
    """The document as bytes. Half a surrogate pair, which JSON cannot contain, becomes a question mark."""
    try:
        return msgspec.json.encode(problem) + b"\n"
    except UnicodeEncodeError:
        detail = _encodable(problem.detail)
        return content(
            msgspec.structs.replace(
                problem, detail=detail, reason=detail, field=problem.field and _encodable(problem.field), value=None
            )
        )


def _status(error: Exception) -> HTTPStatus:
    if isinstance(error, InternalServerException) and error.detail == _CLIENT_LEFT:
        return HTTPStatus.BAD_REQUEST
    if isinstance(error, HTTPException):
        return HTTPStatus(error.status_code)
    kinds = (kind for kind in type(error).__mro__ if kind in STATUS)
    return STATUS.get(next(kinds, Exception), HTTPStatus.INTERNAL_SERVER_ERROR)


def _detail(error: Exception, status: HTTPStatus) -> str:
    if isinstance(error, Refused):
        return error.reason
    if isinstance(error, Unavailable) and error.server in _SERVERS:
        said = "denies access" if isinstance(error, Denied) else "did not answer"
        return f"{_SERVERS[error.server]} {said}; what was asked may have happened"
    return _DETAILS.get(status, error.detail if isinstance(error, HTTPException) else status.phrase)


def _shorten(value: Any) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}…"
        case _:
            return None


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
