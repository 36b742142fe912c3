"""A visit of a page: its reader, its address, and the API's own routes, which it asks in this process as its reader.

A page is a caller of the API like any other: it shows nothing that its reader may not see.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

import msgspec
from litestar import Request
from litestar.datastructures import UploadFile
from litestar.enums import RequestEncodingType
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Message
from msgspec import Struct

from services.api.http import paging
from services.api.http.acts import REASON_HEADER
from services.api.http.guards import encode_part, without_slash
from services.api.http.identity import name_caller
from services.api.http.pages.sessions import is_refresh
from services.api.http.routes import JSON
from shared.accounts.rules.apps import Role
from shared.accounts.rules.callers import Caller
from shared.core.plain_words import decode_but
from shared.runtime.cached import CachedByKey, is_unavailable

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


FORM_BYTES = 4_000_000
SHOWN = 50
"""How many things a list shows at once."""
SHARED_READS = "shared_reads"
"""The key in the application's state of the results that open pages share."""
_MOST_FIELDS = 2_000
_MOST_READS = 300
_CHARSET = re.compile(rb"charset\s*\*?=", re.IGNORECASE)


class Visit:
    def __init__(self, request: Request[Any, Any, Any], caller: Caller, session_id: str = "") -> None:
        self.request = request
        self.caller = caller
        self.session_id = session_id
        self.form: dict[str, str] = {}
        self.lists: dict[str, list[str]] = {}
        self.files: dict[str, bytes] = {}
        self.unknown: list[tuple[str, str]] = []
        self._api = InnerApi(request, caller, session_id)

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(map(str, self.request.path_params.values()))

    @property
    def act(self) -> str:
        return without_slash(self.request.scope["path"]).rpartition("/")[2]

    def query(self, name: str) -> str:
        return paging.first(self.request, name)

    async def take_form(self) -> None:
        """Read the form: `form` has the last value of each field, `lists` all values, and `files` the chosen files.
        Raises `ApiProblem` for a form that is too large."""
        try:
            fields = await self._read_fields()
        except HTTPException as error:
            is_too_large = error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            rule = f"a form with its files may have {FORM_BYTES:,} bytes" if is_too_large else error.detail
            raise ApiProblem(error.status_code, rule) from error
        except UnicodeError as error:
            raise ApiProblem(HTTPStatus.BAD_REQUEST, "the texts of a form must be UTF-8") from error
        except ValueError as error:
            raise ApiProblem(HTTPStatus.BAD_REQUEST, f"a form may have {_MOST_FIELDS:,} fields") from error
        for name, value in fields:
            self.form[name] = value.replace("\r\n", "\n")
            self.lists.setdefault(name, []).append(self.form[name])

    async def _read_fields(self) -> list[tuple[str, str]]:
        if self.request.content_type[0] != RequestEncodingType.MULTI_PART:
            text = (await self.request.body()).decode("utf-8", "replace")
            return parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        if _names_encoding(await self.request.body(), self.request.content_type[1].get("boundary", "")):
            raise UnicodeError
        fields = []
        for name, value in (await self.request.form()).multi_items():
            if not isinstance(value, UploadFile):
                fields.append((name, str(value)))
            else:
                self.files[name] = await value.read()
        return fields

    def read_field(self, name: str) -> str:
        return self.form.get(name, "").strip()

    async def read(self, path: str, *parts: str, **query: Any) -> Any:
        """The JSON of a GET. Each `{}` in the path takes one of the parts, with any characters. Raises `ApiProblem` if
        the API refuses or does not answer."""
        return (await self._api.ask("GET", fill(path, parts), query=query)).value

    async def read_list(self, path: str, *parts: str, **query: Any) -> ApiAnswer:
        """A page of a list, and the begin of the next one. It begins at the page's own `?cursor=`. Raises
        `ApiProblem`."""
        asked = {"limit": SHOWN, "cursor": self.query("cursor")} | query
        return await self._api.ask("GET", fill(path, parts), query=asked)

    async def try_read(self, what: str, path: str, *parts: str, **query: Any) -> Any:
        """As `read`, for a page that works without it (`attempt`)."""
        return await self.attempt(what, self.read(path, *parts, **query))

    async def attempt(self, what: str, reading: Awaitable[Any]) -> Any:
        """A reading that the page can do without. `None` while a server is away, and the page says that `what` is
        unknown and why; `None` also for a thing that is missing or hidden from this reader. Raises `ApiProblem` if this
        reader asks too often."""
        try:
            return await reading
        except ApiProblem as problem:
            if problem.status == HTTPStatus.TOO_MANY_REQUESTS:
                raise
            if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                self.unknown.append((what, problem.detail))
            return None

    async def send(
        self,
        method: str,
        path: str,
        *parts: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        reason: str = "",
        key: str = "",
    ) -> Any:
        """Act by a route; returns its answer. Raises `ApiProblem`."""
        answer = await self._api.ask(
            method,
            fill(path, parts),
            query=query,
            body=body,
            reason=reason or self.read_field("reason"),
            key=key or self.form.get("key", ""),
        )
        return answer.value

    async def read_all(self, *reads: Any) -> Sequence[Any]:
        return await asyncio.gather(*reads)

    async def read_shared(self, key: Hashable, read: Callable[[], Awaitable[Any]], *, seconds: float) -> Any:
        """A value of `read`; for a refresh, one read at most `seconds` ago, also for another reader. Readers with the
        same `key` share it, so `key` must contain every right that changes it. The value must not be changed."""
        reads: CachedByKey[Any] = self.request.app.state[SHARED_READS]
        return await reads.get(key, read, seconds=seconds if is_refresh(self.request) else 0)

    def may(self, role: str, *, app: str | None = None, namespace: str | None = None) -> bool:
        if app is not None:
            held = self.caller.role_over_app(app)
        elif namespace is not None:
            held = self.caller.role_over_namespace(namespace)
        else:
            held = self.caller.role_over_everything
        return held is not None and held.covers(Role(role))


def shared_reads(monotonic: Callable[[], float] = time.monotonic) -> CachedByKey[Any]:
    """The results that open pages share. Opening a page always reads anew, because its reader may have changed
    something."""
    return CachedByKey(most=_MOST_READS, shares=_is_of_server, monotonic=monotonic)


def _is_of_server(error: Exception) -> bool:
    """Whether all readers would get the error, not only this one."""
    return is_unavailable(error) or (isinstance(error, ApiProblem) and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR)


def _names_encoding(body: bytes, boundary: str) -> bool:
    """Whether a part declares the encoding of its text. Browsers do not, and some of Python's codecs are slow, or
    return no text."""
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode())
    heads = (part.partition(b"\r\n\r\n")[0] for part in parts)
    return any(_CHARSET.search(head) and b"content-type" in head.lower() for head in heads)


def fill(path: str, parts: Sequence[str]) -> str:
    """The path for `InnerApi`, with one of these parts for each `{}`."""
    return path.format(*map(encode_part, parts))


def address(path: str, *parts: str) -> str:
    """As `fill`, encoded for a link."""
    return path.format(*(quote(part, safe="") for part in parts))
