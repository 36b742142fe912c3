"""`/ui/sign-in` and `/ui/sign-out`: what a stranger sees, and what makes one of a person again."""

from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler

from services.api.http.pages.frame import PageFrame
from services.api.http.pages.html import ROOT, page_handler
from services.api.http.pages.routes import Moved
from services.api.http.pages.sessions import Visitors
from services.api.http.paging import first
from shared.domain.errors import Unauthorized, Unavailable

_FORM_BYTES = 10_000
_TITLE, _TEMPLATE = "Sign in", "frame/sign-in.html"


class Doors:
    def __init__(self, frame: PageFrame, visitors: Visitors) -> None:
        self._frame = frame
        self._visitors = visitors

    def handlers(self) -> list[HTTPRouteHandler]:
        return [
            page_handler("/sign-in", "GET", self.ask),
            page_handler("/sign-in", "POST", self.sign_in, most_bytes=_FORM_BYTES),
            page_handler("/welcome", "GET", self.open_link),
            page_handler("/sign-out", "POST", self.sign_out, most_bytes=_FORM_BYTES),
        ]

    async def ask(self, request: Request[Any, Any, Any]) -> Response[Any]:
        return self._show(request, first(request, "after"))

    async def sign_in(self, request: Request[Any, Any, Any]) -> Response[Any]:
        form = dict(parse_qsl((await request.body()).decode("utf-8", "replace")))
        entering = self._visitors.sign_in(request, form.get("token", "").strip())
        return await self._enter(request, entering, form.get("after", ""))

    async def open_link(self, request: Request[Any, Any, Any]) -> Response[Any]:
        return await self._enter(request, self._visitors.open_link(request, first(request, "key")), "")

    async def _enter(self, request: Request[Any, Any, Any], entering: Awaitable[str], after: str) -> Response[Any]:
        try:
            cookie = await entering
        except Unauthorized as error:
            return self._show(request, after, wrong=error.reason, status=HTTPStatus.UNAUTHORIZED)
        except Unavailable as error:
            return self._frame.show_away(request, "Nobody can sign in now", error)
        return self._frame.move(request, Moved(_inside(after)), {"set-cookie": cookie})

    async def sign_out(self, request: Request[Any, Any, Any]) -> Response[Any]:
        try:
            cookie = await self._visitors.sign_out(request)
        except Unavailable as error:
            return self._frame.show_away(request, "You are still signed in", error)
        return self._frame.move(request, Moved("/sign-in"), {"set-cookie": cookie})

    def _show(
        self, request: Request[Any, Any, Any], after: str, *, wrong: str = "", status: HTTPStatus = HTTPStatus.OK
    ) -> Response[Any]:
        values = {"title": _TITLE, "after": after, "wrong": wrong}
        return self._frame.door(request, _TEMPLATE, status, values)


def _inside(after: str) -> str:
    """The page to open after signing in: below `/ui`, whatever the form says."""
    path = after.removeprefix(ROOT)
    is_below = after.startswith(f"{ROOT}/") and not path.startswith(("//", "/sign-", "/welcome")) and "\\" not in path
    return path if is_below and path.isascii() and path.isprintable() else ""
