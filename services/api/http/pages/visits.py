"""One person's look at one page: who they are, what they typed, and what the API tells them."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote

from litestar import Request
from litestar.datastructures import UploadFile
from litestar.enums import RequestEncodingType
from litestar.exceptions import HTTPException

from services.api.http import paging
from services.api.http.pages.inner import ApiAnswer, ApiProblem, InnerApi
from services.api.http.pages.sessions import is_refresh
from services.api.http.paths import encode_part, without_slash
from shared.domain.accounts.callers import Caller
from shared.domain.accounts.roles import Role
from shared.runtime.cached import CachedByKey, is_unavailable

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
        """All parameters of the path, in order."""
        return tuple(map(str, self.request.path_params.values()))

    @property
    def act(self) -> str:
        """The verb at the end of a form's address."""
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
