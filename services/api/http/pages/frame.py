"""The frame around every page: access, navigation, errors and refreshes; and `/ui/sign-in` and `/ui/sign-out`."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from string import punctuation
from typing import Any
from urllib.parse import parse_qsl, quote

from litestar import Request, Response
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from markupsafe import Markup

from services.api.http import errors
from services.api.http.identity import name_caller
from services.api.http.pages.html import (
    ROOT,
    PageFiles,
    answer_html,
    compress,
    digest_of,
    load_templates,
    page_handler,
    query_of,
    with_query,
)
from services.api.http.pages.routes import SAID, FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.sessions import REFRESH, Visitors
from services.api.http.pages.visits import ApiProblem, Visit
from services.api.http.paging import PUBLIC_PATH, first
from shared.core.errors import Unauthorized, Unavailable

_SHOWN = "x-shown"
_COUNT_DIGITS = 12
_LINKED = punctuation.replace("\\", "")  # what an address may have beside letters and digits, as it is
_REMEDIES = {
    HTTPStatus.INTERNAL_SERVER_ERROR: "The log of this process has the details, under the id of this request.",
    HTTPStatus.NOT_FOUND: "It may have been deleted, or the address is incomplete.",
    HTTPStatus.GONE: "It existed once, and is gone for good.",
    HTTPStatus.FORBIDDEN: "Ask an admin of this deployment for the role that is missing.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Nothing changed. Send a larger file by carillon jobs create --csv FILE.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Nothing is lost. Reload this page in a moment.",
    HTTPStatus.TOO_MANY_REQUESTS: "Wait a moment, then reload this page.",
}
Method = Callable[[Visit], Awaitable[Any]]
Answer = Callable[[Visit], Awaitable[Response[Any]]]


class PageFrame:
    def __init__(self, pages: Sequence[PageSet], visitors: Visitors, *, demands_reasons: bool) -> None:
        self._pages = pages
        self._glance = next((each.glance for each in pages if each.glance), None)
        self._visitors = visitors
        self._files = PageFiles()
        self._sections = sorted({each.section for each in pages if each.section}, key=lambda section: section.order)
        self._tabs = sorted((each.tab for each in pages if each.tab), key=lambda tab: tab.order)
        self._templates = load_templates(self._files, demands_reasons=demands_reasons)

    def handlers(self) -> list[HTTPRouteHandler]:
        handlers = [self._files.handler(), self._handler("/{path:path}", "GET", self._show_nothing)]
        for pages in self._pages:
            shown = {route.path for route, _ in pages.page_routes()}
            for route, method in pages.page_routes():
                handlers.append(self._handler(route.path, "GET", self._page(pages, route, method)))
            for form, method in pages.form_routes():
                handlers.append(self._handler(form.path, "POST", self._form(pages, form, method)))
                if form.path not in shown:
                    handlers.append(self._handler(form.path, "GET", self._show_nothing))
        return handlers

    def door(self, request: Request[Any, Any, Any], template: str, status: HTTPStatus, values: Values) -> Response[Any]:
        html = self._templates.get_template(template).render(self._links(request) | values)
        return answer_html(html, status)

    def move(
        self, request: Request[Any, Any, Any], moved: Moved, headers: dict[str, str] | None = None
    ) -> Response[Any]:
        said = query_of(said=moved.said, count=moved.count) if moved.said else ""
        target = self._base(request) + moved.to + (said.replace("?", "&", 1) if "?" in moved.to else said)
        location = {"location": quote(target, safe=_LINKED)}
        return Response(b"", status_code=HTTPStatus.SEE_OTHER, headers=location | (headers or {}))

    def show_away(self, request: Request[Any, Any, Any], title: str, error: Unavailable) -> Response[Any]:
        """A page for a person who cannot sign in now. It does not reveal which server is away."""
        values = {"title": title, "reason": errors.problem_of(error).detail}
        errors.report(errors.problem_of(error), error)
        return self.door(request, "frame/away.html", HTTPStatus.SERVICE_UNAVAILABLE, values)

    def refuse_path(self, request: Request[Any, Any, Any], error: NotFoundException) -> Response[Any]:
        """The answer to a path without a route: a page below `/ui`, else the API's JSON."""
        if request.method != "GET" or not request.scope["path"].startswith(f"{ROOT}/"):
            return errors.refuse(request, error)
        return self.door(request, "frame/nothing.html", HTTPStatus.NOT_FOUND, {"title": "Not found"})

    def _handler(self, path: str, method: Any, answer: Answer) -> HTTPRouteHandler:
        async def answer_visitor(request: Request[Any, Any, Any]) -> Response[Any]:
            try:
                visitor = await self._visitors.find(request)
            except Unavailable as error:
                return self.show_away(request, "Carillon cannot tell who you are", error)
            if visitor is None:
                return self._ask_to_sign_in(request)
            # So the log tells who looked.
            name_caller(request.scope, visitor.caller, visitor.session_id)
            visit = Visit(request, visitor.caller, visitor.session_id)
            try:
                return await compress(request, await answer(visit))
            except Exception as error:  # noqa: BLE001 - the table of errors knows what to tell
                return self._show_fault(visit, error)

        return page_handler(path, method, answer_visitor)

    def _page(self, pages: PageSet, route: PageRoute, method: Method) -> Answer:
        async def show(visit: Visit) -> Response[Any]:
            return await self._show_page(visit, pages, route, _read_values(visit, route, method))

        return show

    def _form(self, pages: PageSet, form: FormRoute, method: Method) -> Answer:
        async def take(visit: Visit) -> Response[Any]:
            bearer = pages.page_of(form)
            try:
                await visit.take_form()
                done = await method(visit)
            except ApiProblem as problem:
                if bearer is None or not problem.is_refusal:
                    return self._show_problem(visit, problem, _section_of(pages) if bearer else "")
                # The page keeps the typed values, with the problem beside its field. A refresh would drop both.
                told: Values = {"problem": problem, "refresh_seconds": 0}
                return await self._show_page(visit, pages, bearer[0], bearer[1](visit), told, problem.status)
            if isinstance(done, Moved):
                return self.move(visit.request, done)
            if form.fragment and REFRESH in visit.request.headers:
                return answer_html(self._templates.get_template(form.fragment).render(self._context(visit) | done))
            if form.template:
                context = self._context(visit) | {"here": _section_of(pages)}
                return self._show(visit, form.template, context | done, HTTPStatus.OK)
            assert bearer is not None, "a form that shows something is on a page"
            status = done["problem"].status if "problem" in done else HTTPStatus.OK
            return await self._show_page(
                visit, pages, bearer[0], bearer[1](visit), done | {"refresh_seconds": 0}, status
            )

        return take

    async def _show_page(
        self,
        visit: Visit,
        pages: PageSet,
        route: PageRoute,
        reading: Awaitable[Values],
        told: Values | None = None,
        status: int = HTTPStatus.OK,
    ) -> Response[Any]:
        try:
            values = await reading
        except ApiProblem as problem:
            return self._show_problem(visit, problem, _section_of(pages))
        context = {"here": _section_of(pages), "refresh_seconds": route.refresh_seconds}
        if self._glance and REFRESH not in visit.request.headers and visit.may("viewer"):
            counts = await self._glance()
            context["needs"] = {each.path: sum(counts.get(kind, 0) for kind in each.needs) for each in self._sections}
        shown = self._context(visit) | context | values | (told or {})
        return self._show(visit, route.template, shown, HTTPStatus(status))

    def _show_problem(self, visit: Visit, problem: ApiProblem, section: str = "") -> Response[Any]:
        status = HTTPStatus(problem.status)
        title = status.phrase.capitalize()
        context: Values = {"here": None, "problem": problem, "title": title, "remedy": _REMEDIES.get(status, "")}
        if status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
            context["lists"] = [each for each in self._sections if section and each.path == section]
        return self._show(visit, "frame/problem.html", self._context(visit) | context, status)

    def _show_fault(self, visit: Visit, error: Exception) -> Response[Any]:
        problem = errors.problem_of(error)
        errors.report(problem, error)
        return self._show_problem(visit, ApiProblem(problem.status, problem.detail))

    async def _show_nothing(self, visit: Visit) -> Response[Any]:
        return self._show_problem(visit, ApiProblem(HTTPStatus.NOT_FOUND, "there is nothing at this path"))

    def _ask_to_sign_in(self, request: Request[Any, Any, Any]) -> Response[Any]:
        path, query = request.scope["path"], request.scope["query_string"].decode("latin-1")
        wanted = path + (f"?{query}" if query else "")
        after = quote(wanted, safe="/") if request.method == "GET" and path != ROOT else ""
        target = f"{self._base(request)}/sign-in" + (f"?after={after}" if after else "")
        if REFRESH in request.headers:
            # A refresh puts what it gets into the middle of a page.
            return Response(b"", status_code=HTTPStatus.OK, headers={"hx-redirect": target})
        return Response(b"", status_code=HTTPStatus.SEE_OTHER, headers={"location": target})

    def _show(self, visit: Visit, template: str, context: Values, status: HTTPStatus) -> Response[Any]:
        body = self._templates.get_template("frame/page.html").render(context | {"page_template": template})
        digest = digest_of(body)
        inside = f'<div id="inside" data-digest="{digest}">\n{body}\n</div>'
        if REFRESH not in visit.request.headers:
            whole = self._templates.get_template("frame/whole.html")
            return answer_html(whole.render(context | {"inside": Markup(inside)}), status)  # noqa: S704
        if status is HTTPStatus.OK and not context["refresh_seconds"]:
            # Nothing moves here any more: the browser loads the whole page, once, which does not ask again.
            target = quote(context["here_url"].unescape().removesuffix("?"), safe=punctuation)
            return Response(b"", status_code=HTTPStatus.OK, headers={"hx-redirect": target})
        if visit.request.headers.get(_SHOWN) == digest:
            return Response(b"", status_code=HTTPStatus.NO_CONTENT)
        return answer_html(inside, status)

    def _context(self, visit: Visit) -> Values:
        said = SAID.get(visit.query("said"), "").format(count=_read_count(visit.query("count")))
        query = _read_query(visit)
        return self._links(visit.request) | {
            "visit": visit,
            "caller": visit.caller,
            "may": visit.may,
            "is_session": bool(visit.session_id),
            "sections": [section for section in self._sections if section.is_seen(visit)],
            "tabs": [(tab.label, self._base(visit.request) + tab.path) for tab in self._tabs if tab.is_seen(visit)],
            "said": said,
            "typed": visit.form,
            "unknown": visit.unknown,
            "problem": None,
            "lists": [],
            "needs": {},
            "refresh_seconds": 0,
            "query": query,
            "here_url": self._base(visit.request)
            + visit.request.scope["path"].removeprefix(ROOT)
            + with_query(query, said="", count=""),
        }

    def _links(self, request: Request[Any, Any, Any]) -> Values:
        return {"base": self._base(request), "root": request.app.state[PUBLIC_PATH], "now": datetime.now(UTC)}

    def _base(self, request: Request[Any, Any, Any]) -> str:
        return f"{request.app.state[PUBLIC_PATH]}{ROOT}"


def _section_of(pages: PageSet) -> str:
    if pages.section:
        return pages.section.path
    return pages.tab.under if pages.tab else ""


async def _read_values(visit: Visit, route: PageRoute, method: Method) -> Values:
    """The page's values. A refresh takes values that were read for another reader of the same page within
    `refresh_seconds`."""
    if not route.refresh_seconds:
        return await method(visit)  # type: ignore[no-any-return]

    async def read() -> tuple[Values, list[tuple[str, str]]]:
        return await method(visit), visit.unknown

    whose = visit.caller.rights if route.shared_by_roles else visit.caller.identity
    key = (visit.request.scope["path"], with_query(_read_query(visit), said="", count=""), whose)
    values, visit.unknown = await visit.read_shared(key, read, seconds=route.refresh_seconds)
    return dict(values)


def _read_query(visit: Visit) -> dict[str, str]:
    return {name: str(values[0]) for name, values in visit.request.query_params.dict().items()}


def _read_count(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS else ""


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
            return self._frame.show_away(request, "Signing in is not possible now", error)
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
