"""Read-only pages as a small ASGI application: what a process shows of itself needs no framework.

GET returns the page, OPTIONS its methods. Another method is a 405, another path a 404. Extra slashes do no harm.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from msgspec import Struct

_JSON = b"application/json"
_METHODS = b"GET, OPTIONS"

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class PlainPage(Struct, frozen=True):
    """An answer. `allow` lists the methods of the path in answers to OPTIONS and in 405."""

    status: HTTPStatus
    body: bytes = b""
    content_type: bytes = b""
    allow: bytes = b""

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of the page. Browsers must not guess the type of its body."""
        fields = [
            (b"content-type", self.content_type),
            (b"allow", self.allow),
            (b"content-length", b"" if self.status == HTTPStatus.NO_CONTENT else b"%d" % len(self.body)),
            (b"x-content-type-options", b"nosniff"),
        ]
        return [(name, value) for name, value in fields if value]


Show = Callable[[], Awaitable[PlainPage]]


class Pages:
    """The application: a function for the page at each path."""

    def __init__(self, pages: Mapping[str, Show]) -> None:
        self._pages = dict(pages)

    @property
    def paths(self) -> list[str]:
        return list(self._pages)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        page = await self._answer(scope["method"], scope["path"])
        await send({"type": "http.response.start", "status": page.status.value, "headers": page.headers()})
        await send({"type": "http.response.body", "body": page.body})

    async def _answer(self, method: str, path: str) -> PlainPage:
        show = self._pages.get("/" + "/".join(filter(None, path.split("/"))))
        match method:
            case _ if show is None:
                return _refuse(HTTPStatus.NOT_FOUND)
            case "GET":
                return await show()
            case "OPTIONS":
                return PlainPage(HTTPStatus.NO_CONTENT, allow=_METHODS)
            case _:
                return _refuse(HTTPStatus.METHOD_NOT_ALLOWED, allow=_METHODS)


def json_page(status: HTTPStatus, content: Mapping[str, object]) -> PlainPage:
    """A page of JSON in ASCII: a server's text may hold half a surrogate pair, which UTF-8 cannot encode."""
    return PlainPage(status, json.dumps(content).encode(), _JSON)


def _refuse(status: HTTPStatus, allow: bytes = b"") -> PlainPage:
    body = json.dumps({"status_code": status.value, "detail": status.phrase}).encode()
    return PlainPage(status, body, _JSON, allow)
