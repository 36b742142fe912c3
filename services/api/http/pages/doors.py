"""`/ui/sign-in` and `/ui/sign-out`: what a stranger sees, and what makes one of a person again."""

from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler

from services.api.http.pages.frame import ROOT, PageFrame
from services.api.http.pages.routes import Moved
from services.api.http.pages.sessions import Visitors
from services.api.http.paging import first
from services.api.http.rights import EVERYBODY
from shared.domain.errors import Unauthorized, Unavailable

_TITLE, _TEMPLATE = "Sign in", "frame/sign-in.html"
_FORM_BYTES = 10_000
_AWAY = "Nobody can sign in now"


class Doors:
    def __init__(self, frame: PageFrame, visitors: Visitors) -> None:
        self._frame = frame
        self._visitors = visitors

    def handlers(self) -> list[HTTPRouteHandler]:
        return [
            _handler("GET", "/sign-in", self.ask),
            _handler("POST", "/sign-in", self.sign_in),
            _handler("GET", "/welcome", self.open_link),
            _handler("POST", "/sign-out", self.sign_out),
        ]

    async def ask(self, request: Request[Any, Any, Any]) -> Response[Any]:
        return self._show(request, first(request, "after"))

    async def sign_in(self, request: Request[Any, Any, Any]) -> Response[Any]:
        """Begin a session, and go on to where the person wanted to go."""
        form = dict(parse_qsl((await request.body()).decode("utf-8", "replace")))
        after = form.get("after", "")
        try:
            cookie = await self._visitors.sign_in(request, form.get("token", "").strip())
        except Unauthorized as error:
            return self._show(request, after, wrong=error.reason, status=HTTPStatus.UNAUTHORIZED)
        except Unavailable as error:
            return self._frame.show_away(request, _AWAY, error)
        return self._frame.move(request, Moved(_inside(after)), {"set-cookie": cookie})

    async def open_link(self, request: Request[Any, Any, Any]) -> Response[Any]:
        """Begin a session for whom the link was made."""
        try:
            cookie = await self._visitors.open_link(request, first(request, "key"))
        except Unauthorized as error:
            return self._show(request, "", wrong=error.reason, status=HTTPStatus.UNAUTHORIZED)
        except Unavailable as error:
            return self._frame.show_away(request, _AWAY, error)
        return self._frame.move(request, Moved(""), {"set-cookie": cookie})

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


def _handler(method: Any, path: str, answer: Any) -> HTTPRouteHandler:
    return HTTPRouteHandler(
        ROOT + path,
        http_method=[method],
        opt={"who": EVERYBODY},
        request_max_body_size=_FORM_BYTES,
        status_code=HTTPStatus.OK,
    )(answer)
