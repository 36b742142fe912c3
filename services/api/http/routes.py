"""Routes: each has a method, a path, the right to use it, and its part of the OpenAPI document in one place.

A `Route` decorates the method that answers it, and that method becomes a Litestar handler here and nowhere else. So a
route without a rule for its callers or without a description cannot exist.

Each method reads its body itself, and not by Litestar's `data`. Marathon's routes do so by `bodies`: their keys match
in any case, `null` is absence, and only the first JSON value counts, which no decoder of Litestar's reads. The strict
routes do so by decoders of their own (`decode_body`): Litestar's errors do not name a field in the words of our
problems. Besides, an Idempotency-Key belongs to the bytes of a body, so a method needs these anyway, and whether the
app is there is told before what is wrong with a body.
"""

import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Literal, TypeVar

from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.handlers import HTTPRouteHandler
from litestar.types import Empty
from msgspec import Struct

from services.api.http.acts import record_act, remember_request
from services.api.http.bodies import Checks
from services.api.http.errors import BadInput
from services.api.http.identity import Connection
from services.api.http.paging import DRY_RUN_NAME, contains_dry_run, means_dry_run
from services.api.http.rights import OnBus, Who, permit
from shared.core.errors import Invalid, suggest

JSON = "application/json"
LENIENT_JOBS = "lenient_jobs"
"""The key in the application's state of `api.lenient_jobs`: Marathon's routes ignore unknown query parameters."""

# The paths of Marathon's published routes; `render` and `preview` are ours.
OF_MARATHON = re.compile(
    r"/apps(/[^/]+(/templates(/(?!render$)[^/]+)?|/jobs(/(?!preview$)[^/]+(/(pause|resume|stop))?)?)?)?"
    r"|/users(/[^/]+)?|/uploadurl"
)
_ROUTE = "route"
_SHOWN_CHARACTERS = 64
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Function = TypeVar("Function", bound=Callable[..., Awaitable[Response[Any]]])


class Parameter(Struct, frozen=True, kw_only=True):
    """A query parameter or a header. `schema` is its JSON schema. A query may have one that is `repeated` several
    times, and one that `may_be_empty` without a value. A route itself refuses a `required` one without a value."""

    name: str
    description: str
    schema: dict[str, Any]
    required: bool = False
    repeated: bool = False
    may_be_empty: bool = False
    place: Literal["query", "header"] = "query"


LIMIT = Parameter(
    name="limit",
    description="How many items a page has at most. It has fewer where they have 8 MB together; `Link` leads on.",
    schema={"type": "integer", "minimum": 1, "maximum": 1000, "default": 1000},
)
CURSOR = Parameter(
    name="cursor", description="The beginning of the page, from a `Link` header.", schema={"type": "string"}
)

DRY_RUN = Parameter(
    name=DRY_RUN_NAME,
    description="`true`: tell in figures what would be done, and do nothing.",
    schema={"type": "boolean"},
)


class Route(Struct, frozen=True):
    """A route. `@Route("GET", "/apps", ...)` decorates the method of a `Resource` that answers it.

    `summary` describes it to callers. `answers` maps a status to the type of its body, to a tuple of types where it
    may have several, and to `None` for an empty one. `body` is the type of the request's body; the method itself reads
    it, in its own time, and takes it as any of `body_media`. `limits` are the bounds and choices of types of
    `carillon.wire`; those of answers are for the OpenAPI document. A body over `max_body_bytes`, by default the
    application's limit, is refused; where that depends on the deployment, it is a function of the resource. A route
    that `streams` passes its body on as it comes and never holds it.
    A list that `exports` is also given whole, as text of these media types, where `Accept` names one.
    `segments` has the JSON schemas of parts of the path, but for the usual ids. The audit shows such parts, and
    parameters, by their `masks`. A route that is no GET names its `act`, `job.stop` for instance, which is written
    down (`acts`), or `UNRECORDED`. A query parameter that is not among its own is refused, except by a route that takes
    `any_query`.
    """

    method: Method
    path: str
    summary: str
    who: Who
    answers: dict[HTTPStatus, Any]
    act: str | None = None
    problems: tuple[HTTPStatus, ...] = ()
    body: Any = None
    limits: Checks | None = None
    body_media: tuple[str, ...] = (JSON,)
    body_required: bool = True
    parameters: tuple[Parameter, ...] = ()
    segments: dict[str, dict[str, Any]] = {}
    masks: dict[str, Callable[[str], str]] = {}
    paged: bool = False
    max_body_bytes: int | Callable[[Any], int] | None = None
    streams: bool = False
    exports: tuple[str, ...] = ()
    any_query: bool = False

    def __call__(self, function: Function) -> Function:
        setattr(function, _ROUTE, self)
        return function

    @property
    def tag(self) -> str:
        """The first part of the path that groups it."""
        named = [part for part in self.path.split("/") if part and not part.startswith("{")]
        part = named[1] if len(named) > 1 and named[0] == "apps" else named[0]
        return "uploads" if part == "uploadurl" else part

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        return (*self.parameters, LIMIT, CURSOR) if self.paged else self.parameters

    @property
    def ignores_unknown(self) -> bool:
        """Whether it ignores unknown query parameters, as Routemaster does, which reads none."""
        return self.any_query or isinstance(self.who, OnBus)

    @property
    def is_published(self) -> bool:
        """Whether Marathon or Routemaster published it: their clients may send more than Carillon reads."""
        return isinstance(self.who, OnBus) or OF_MARATHON.fullmatch(self.path) is not None


class Resource:
    """Routes that belong together. One that only some deployments have belongs to a resource of its own."""

    def handlers(self) -> list[HTTPRouteHandler]:
        """A handler for each method with a `Route`, in the order of their definitions."""
        return [
            self._handler(route, getattr(self, name))
            for name, method in vars(type(self)).items()
            if isinstance(route := getattr(method, _ROUTE, None), Route)
        ]

    def _handler(self, route: Route, function: Callable[..., Any]) -> HTTPRouteHandler:
        if route.act is None and route.method != "GET":
            raise ValueError(f"{route.method} {route.path} does not say which act it is")
        limit = route.max_body_bytes
        if callable(limit):
            limit = limit(self)
        if route.act:
            is_dry = DRY_RUN in route.parameters
            function = record_act(route.act, function, may_be_dry=is_dry, masks=route.masks)
        return _Handler(
            route.path,
            http_method=[route.method],
            guards=[permit],
            opt={"who": route.who, "route": route, "streams": route.streams},
            request_max_body_size=Empty if limit is None else limit,
            # Litestar takes a DELETE to have no answer. Every answer brings its own status along.
            status_code=HTTPStatus.OK if route.method == "DELETE" and any(route.answers.values()) else None,
        )(function)


class _Handler(HTTPRouteHandler):
    """A handler that its guards cannot change: Litestar gives each guard a copy, for every request."""

    async def authorize_connection(self, connection: ASGIConnection[Any, Any, Any, Any]) -> None:
        remember_request(connection)
        for guard in self.resolve_guards():
            await guard(connection, self)  # type: ignore[misc] # Litestar runs all guards as coroutines
        route: Route = self.opt["route"]
        try:
            _check_query(connection, route)
            await _check_body(connection, route)
        except Invalid as error:
            if isinstance(route.who, OnBus):
                raise BadInput(error.reason, field=error.field, value=error.value) from None
            raise


def _check_query(connection: Connection, route: Route) -> None:
    """Raise `Invalid` for a query parameter that the route does not know, or that has no value or several. An act meant
    as a dry run never runs, whatever else the route ignores."""
    if not connection.scope["query_string"]:
        return
    known = {each.name: each for each in route.all_parameters if each.place == "query"}
    is_lenient = route.ignores_unknown or (route.is_published and bool(connection.app.state.get(LENIENT_JOBS)))
    for name, values in connection.query_params.dict().items():
        parameter = known.get(name)
        if parameter is None:
            if is_lenient and (route.method == "GET" or not means_dry_run(name)):
                continue
            hint = suggest(name, known) or f"; this route takes {', '.join(known) or 'none'}"
            raise Invalid(f"unknown query parameter {name[:_SHOWN_CHARACTERS]!r}{hint}", field=name)
        if len(values) > 1 and not parameter.repeated:
            raise Invalid(f"the query has {name} {len(values)} times, and it takes one value", field=name)
        if "" in values and not (parameter.may_be_empty or parameter.required):
            raise Invalid(f"{name} is empty: give it a value, or leave it out", field=name)


async def _check_body(connection: Connection, route: Route) -> None:
    """Raise `Invalid` for an act with a body that it does not read. Published routes ignore such a body, unless it asks
    for a dry run."""
    if not route.act or route.body is not None or route.streams or not isinstance(connection, Request):
        return
    if connection.headers.get("content-length", "0") == "0" and "transfer-encoding" not in connection.headers:
        return
    content = (await connection.body()).strip()
    if contains_dry_run(content) if route.is_published else content not in {b"", b"{}", b"null"}:
        raise Invalid(f"{route.method} on this path reads no body: leave the body out", field="body")
