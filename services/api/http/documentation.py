"""`/`, `/docs` and `/openapi.json`: the ways in, and the documentation, which loads nothing from elsewhere.

The page is Swagger UI 5.35.0 (Apache-2.0), whose files lie compressed in `assets/` with their licences, as published
but for the references to source maps. The content security policy keeps a browser from fetching anything from another
host.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from services.api.http.bodies import JSON
from services.api.http.openapi import TITLE, document
from services.api.http.pages.html import ROOT
from services.api.http.paging import public_path
from services.api.http.rights import EVERYBODY
from services.api.http.routes import Resource, Route
from shared.core.errors import NotFound

POLICY = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"

_PATH = "{path}"  # stands for the path below which callers reach the API

PAGE = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{TITLE}</title>
<link rel="icon" type="image/svg+xml" href="{_PATH}/docs/favicon.svg">
<link rel="stylesheet" href="{_PATH}/docs/swagger-ui.css">
</head>
<body>
<div id="page"></div>
<script src="{_PATH}/docs/swagger-ui-bundle.js"></script>
<script src="{_PATH}/docs/page.js"></script>
</body>
</html>
"""

SCRIPT = """SwaggerUIBundle({
  url: "{path}/openapi.json",
  dom_id: "#page",
  deepLinking: true,
  validatorUrl: null,
});
"""

FAVICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path fill="#7a4a1e"
d="M8 1a1.2 1.2 0 0 0-1.2 1.3C4.9 2.8 4 4.4 4 6.5c0 3-.8 4-1.6 5v.7h11.2v-.7c-.8-1-1.6-2-1.6-5 0-2.1-.9-3.7-2.8-4.2A1.2
1.2 0 0 0 8 1zM6.4 13a1.6 1.6 0 0 0 3.2 0z"/></svg>
"""

_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_KEPT = {"cache-control": "max-age=86400"}
# Browsers and tools add parameters against caches.
_route = partial(Route, "GET", who=EVERYBODY, answers={HTTPStatus.OK: None}, any_query=True)
_VENDORED = ("swagger-ui-bundle.js", "swagger-ui.css")


class DocumentationResource(Resource):
    """The document of the given routes, the page that shows it, and `/`, which leads to both and to the dashboard."""

    def __init__(
        self, handlers: Iterable[HTTPRouteHandler], *, public_url: str = "", has_dashboard: bool = False
    ) -> None:
        path = public_path(public_url)
        self._ways = ({"dashboard": path + ROOT} if has_dashboard else {}) | {
            "docs": f"{path}/docs",
            "openapi": f"{path}/openapi.json",
        }
        self._handlers = list(handlers)
        self._public_url = public_url
        self._document = b""
        self._describing = asyncio.Lock()
        self._page = PAGE.replace(_PATH, path)
        self._written_here = {"page.js": SCRIPT.replace(_PATH, path), "favicon.svg": FAVICON}
        assets = files("services.api.http") / "assets"
        self._compressed = {name: (assets / f"{name}.gz").read_bytes() for name in _VENDORED}

    @_route("/", summary="The addresses of the dashboard and the documentation; a browser goes to the dashboard.")
    async def show_ways(self, request: Request[Any, Any, Any]) -> Response[Any]:
        headers = {"vary": "accept"}
        if "dashboard" in self._ways and "text/html" in request.headers.get("accept", "").lower():
            headers["location"] = self._ways["dashboard"]
            return Response(b"", status_code=HTTPStatus.SEE_OTHER, headers=headers)
        return Response(self._ways, media_type=JSON, headers=headers)

    @_route("/openapi.json", summary="The OpenAPI document.")
    async def openapi(self) -> Response[bytes]:
        async with self._describing:
            if not self._document:  # it takes as long as all else at the start, and few ask for it
                self._document = await asyncio.to_thread(self._describe)
        return Response(self._document, media_type=JSON)

    @_route("/docs", summary="The page that shows it.")
    async def page(self) -> Response[str]:
        headers = {"content-security-policy": POLICY}
        return Response(self._page, media_type="text/html", headers=headers)

    @_route("/docs/{name:str}", summary="A file that the page needs.")
    async def asset(self, name: FromPath[str]) -> Response[Any]:
        kind = _TYPES.get(name.rpartition(".")[2], "")
        if name in self._written_here:
            return Response(self._written_here[name], media_type=kind, headers=_KEPT)
        if name in self._compressed:
            headers = _KEPT | {"content-encoding": "gzip"}
            return Response(self._compressed[name], media_type=kind, headers=headers)
        raise NotFound("there is nothing at this path")

    def _describe(self) -> bytes:
        return msgspec.json.encode(document(self._handlers, public_url=self._public_url))
