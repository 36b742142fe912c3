"""What a route is: a method, a path, who may use it, and what the OpenAPI document tells of it, in one call.

A bare function or method of a resource becomes a Litestar handler here and nowhere else, so a route without a rule
for its callers or without a description cannot exist.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Literal, Protocol

from litestar.connection import ASGIConnection
from litestar.handlers import HTTPRouteHandler
from litestar.types import Empty
from msgspec import Struct

from services.api.http.identity import Who, permit

JSON = "application/json"
_NO_SEGMENTS: Mapping[str, dict[str, Any]] = MappingProxyType({})
Method = Literal["GET", "POST", "PUT", "DELETE"]


class Parameter(Struct, frozen=True, kw_only=True):
    """A query parameter or a header. `schema` is its JSON schema."""

    name: str
    description: str
    schema: dict[str, Any]
    required: bool = False
    place: Literal["query", "header"] = "query"


class Operation(Struct, frozen=True, kw_only=True):
    """A route as the OpenAPI document tells it. `answers` maps a status to the type of its body, `None` for an empty
    one. `segments` has the JSON schemas of what stands in the path, but for the usual ids."""

    who: Who
    tag: str
    summary: str
    answers: dict[HTTPStatus, Any]
    problems: tuple[HTTPStatus, ...] = ()
    body: Any = None
    body_media: tuple[str, ...] = ()
    body_required: bool = True
    parameters: tuple[Parameter, ...] = ()
    segments: Mapping[str, dict[str, Any]]
    paged: bool = False


class _Handler(HTTPRouteHandler):
    """A handler that its guards cannot change: Litestar gives each guard a copy, for every request."""

    async def authorize_connection(self, connection: ASGIConnection[Any, Any, Any, Any]) -> None:
        for guard in self.resolve_guards():
            await guard(connection, self)  # type: ignore[misc] # Litestar runs all guards as coroutines


LIMIT = Parameter(
    name="limit",
    description="How many items a page has at most. It has fewer where they have 8 MB together; `Link` leads on.",
    schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 1000},
)
CURSOR = Parameter(
    name="cursor", description="Where the page begins: what a `Link` header gave.", schema={"type": "string"}
)


def endpoint(
    method: Method,
    path: str,
    function: Callable[..., Any],
    *,
    who: Who,
    answers: dict[HTTPStatus, Any],
    problems: tuple[HTTPStatus, ...] = (),
    body: Any = None,
    body_media: tuple[str, ...] = (JSON,),
    body_required: bool = True,
    parameters: tuple[Parameter, ...] = (),
    segments: Mapping[str, dict[str, Any]] = _NO_SEGMENTS,
    paged: bool = False,
    max_body_bytes: int | None = None,
    streams: bool = False,
) -> HTTPRouteHandler:
    """The handler of one route. Its summary is the function's docstring; its tag the first part of its path that
    groups it.

    `body` is the type of the request's body; the function itself reads it, in its own time, and takes it as any of
    `body_media`. A body over `max_body_bytes`, by default the application's limit, is refused. A route that `streams`
    passes its body on as it comes and never holds it.
    """
    operation = Operation(
        who=who,
        tag=_tag(path),
        summary=(function.__doc__ or "").strip().splitlines()[0],
        answers=answers,
        problems=problems,
        body=body,
        body_media=body_media,
        body_required=body_required,
        parameters=(*parameters, LIMIT, CURSOR) if paged else parameters,
        segments=segments,
        paged=paged,
    )
    return _Handler(
        path,
        http_method=[method],
        guards=[permit],
        opt={"who": who, "operation": operation, "streams": streams},
        request_max_body_size=Empty if max_body_bytes is None else max_body_bytes,
    )(function)


class Resource(Protocol):
    """Routes that belong together."""

    def handlers(self) -> list[HTTPRouteHandler]:
        """The routes, each made by `endpoint`."""


def _tag(path: str) -> str:
    named = [part for part in path.split("/") if part and not part.startswith("{")]
    return named[1] if len(named) > 1 and named[0] == "apps" else named[0]
