"""Asks the API's own routes in this process, without a connection, as the person who looks at a page.

The request passes everything that stands behind the look-up of the caller: limits, guards of routes, audit.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec
from litestar import Request
from litestar.types import ASGIApp, Message
from msgspec import Struct

from services.api.http.acts import REASON_HEADER
from services.api.http.identity import name_caller
from services.api.http.routes import JSON
from shared.domain.accounts.callers import Caller
from shared.domain.plain_words import decode_but

INNER = "inner"
"""The key in the application's state of what answers requests whose caller is known."""

AGENT = "carillon-ui"
_BYTES = "application/octet-stream"
_COPIED = ("type", "asgi", "http_version", "scheme", "server", "client", "root_path", "extensions", "app")

Query = Mapping[str, Any]

_FIELDS = {REASON_HEADER: "reason"}  # what forms call that which the API calls otherwise


class ApiProblem(Exception):
    """A route refused, or could not answer. `field` names what was wrong in the request, `""` where that is nothing in
    particular."""

    def __init__(self, status: int, detail: str, field: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field

    @property
    def is_refusal(self) -> bool:
        """Whether its caller can correct the request."""
        return self.status in {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.TOO_MANY_REQUESTS}


class ApiAnswer(Struct, frozen=True):
    """The JSON of a route's answer, the cursor of a list's next page, `""` after the last one, and the headers. Parts
    that are only handed on are a `msgspec.Raw`."""

    value: Any
    next: str = ""
    headers: Mapping[str, str] = {}


class InnerApi:
    def __init__(self, request: Request[Any, Any, Any], caller: Caller, session_id: str) -> None:
        self._request = request
        self._caller = caller
        self._session_id = session_id
        self._app: ASGIApp = request.app.state[INNER]

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        reason: str = "",
        key: str = "",
    ) -> ApiAnswer:
        """Send one request. `body` becomes JSON, unless it is bytes; `key` is its idempotency key. Raises `ApiProblem`
        for a status of 400 or more."""
        is_file = isinstance(body, bytes)
        content = body if is_file else b"" if body is None else msgspec.json.encode(body)
        headers = _headers(content, reason, key) | ({"content-type": _BYTES} if is_file else {})
        scope = self._scope(method, path, _encode_query(query or {}), headers)
        status, headers, answer = await _run(self._app, scope, content)
        if status >= HTTPStatus.BAD_REQUEST:
            raise _problem(status, answer)
        is_json = "json" in headers.get("content-type", "")
        value = decode_but(answer) if is_json and answer.strip() else answer.decode("utf-8", "replace")
        return ApiAnswer(value, _next_of(headers.get("link", "")), headers)

    def _scope(self, method: str, path: str, query: str, headers: dict[str, str]) -> Any:
        outer = self._request.scope
        scope: Any = {name: outer[name] for name in _COPIED if name in outer}  # type: ignore[literal-required]
        scope |= {
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "state": {},
            "path_params": {},
            "litestar_app": self._request.app,
        }
        name_caller(scope, self._caller, self._session_id)
        return scope


async def _run(app: ASGIApp, scope: Any, content: bytes) -> tuple[int, dict[str, str], bytes]:
    status, headers, parts = 0, {}, []
    left = [content]

    async def receive() -> Any:
        return {"type": "http.request", "body": left.pop() if left else b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
        elif message["type"] == "http.response.body":
            parts.append(message["body"])

    await app(scope, receive, send)
    return status, headers, b"".join(parts)


def _headers(content: bytes, reason: str, key: str) -> dict[str, str]:
    headers = {"user-agent": AGENT, "accept": JSON}
    if content:
        headers |= {"content-type": JSON, "content-length": str(len(content))}
    if reason:
        headers[REASON_HEADER] = _one_line(reason)
    if key:
        headers["idempotency-key"] = key
    return headers


def _one_line(text: str) -> str:
    """The text as a header value without control characters, so that one record cannot look like two."""
    return "".join(each if each.isprintable() else " " for each in " ".join(text.splitlines()))


def _encode_query(query: Query) -> str:
    given = {name: value for name, value in query.items() if value not in (None, "", ())}
    written = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
    return urlencode(written, quote_via=quote)  # a blank as %20: routes doubt that a + is meant to be one


def _problem(status: int, answer: bytes) -> ApiProblem:
    try:
        problem = msgspec.json.decode(answer)
        field = str(problem.get("field") or "")
        return ApiProblem(status, str(problem["detail"]), _FIELDS.get(field, field))
    except (msgspec.DecodeError, KeyError, AttributeError, TypeError):
        return ApiProblem(status, HTTPStatus(status).phrase)


def _next_of(link: str) -> str:
    if 'rel="next"' not in link:
        return ""
    target = urlsplit(link.partition("<")[2].partition(">")[0])
    return parse_qs(target.query).get("cursor", [""])[0]
