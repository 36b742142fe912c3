"""Every route of the API has a method in both clients, with all that the route takes: nobody can forget a new one.

Each method is called once, with all of its arguments, on a server that refuses everything and keeps what it was asked.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from aiohttp import web
from msgspec import Struct

from carillon import AsyncCarillon, BulkFilter, CarillonError, PushJob, RabbitCallback, Schedule, Template, Token, User
from carillon.calls import Resource, call, listing
from tests.client.test_attempts import Scripted, scripted
from tests.services.api.conftest import House

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.native,
    pytest.mark.usefixtures("each_client"),
]

# The place of files, which GET /uploadurl tells.
FOR_NO_CLIENT = {("PUT", "/uploads/{path}")}
# What only Marathon's clients ask for, and the app that stands in each of its templates.
LEFT_OUT = re.compile(
    r"(^|\.)(app|dbPageSize|totalUsers|statusEvents\.(id|jobID|createdAt|events\.(id|statusID)))($|\.)"
)
# Routes that are agreed on and not there yet, so nothing holds them against the API; a line goes when its route comes.
COMING = {
    ("GET", "/apps/{appId}/jobs/{jobId}/batches"),
    ("GET", "/apps/{appId}/jobs/{jobId}/rate"),
    ("GET", "/apps/{appId}/jobs/{jobId}/samples"),
    ("GET", "/bulk-actions"),
    ("GET", "/bulk-actions/{actionId}"),
    ("GET", "/queues/{name}/dead"),
    ("POST", "/apps/{appId}/templates/render"),
    ("POST", "/bulk-actions"),
    ("POST", "/bulk-actions/{actionId}/cancel"),
    ("POST", "/queues/{name}/dead/purge"),
    ("POST", "/queues/{name}/dead/return"),
}

CALLBACK = RabbitCallback(queue="q", payload={"id": "42"})
SCHEDULE = Schedule(key="k", every_seconds=60, callback=CALLBACK)
ARGUMENTS: dict[str, Any] = {
    "act": "job.stop",
    "bundle_id": "com.example.game",
    "expires_at": datetime(2030, 1, 1, tzinfo=UTC),
    "filter": BulkFilter(by="a@example.com"),
    "instant": datetime(2030, 1, 1, tzinfo=UTC),
    "job": PushJob(service="apns", templates=["like"]),
    "limit": 2,
    "minutes": 5,
    "move": "stop",
    "overlap_seconds": 60,
    "page_size": 2,
    "schedule": SCHEDULE,
    "schedules": [SCHEDULE],
    "source": __file__,
    "template": Template(name="like", locale="en", body={"alert": "hi"}),
    "templates": [Template(name="like", locale="en", body={"alert": "hi"})],
    "token": Token(name="billing"),
    "user": User(email="a@example.com"),
    "within_seconds": 60,
}
# Of one name in several methods.
SPECIAL: dict[tuple[str, str], Any] = {
    ("Audit.list", "act"): "job.stop",
    ("Jobs.list", "templates"): ["like", "love"],
    ("Jobs.list_all", "templates"): ["like", "love"],
    ("Templates.render", "context"): {"user": "Ana"},
}


def methods(client: AsyncCarillon) -> Iterator[tuple[str, Any]]:
    """What a client offers, by its names."""
    own = getattr(client, "_client", client)  # in threads, the client that is there
    for name, attribute in {"": own, **vars(own)}.items():
        if isinstance(attribute, Resource):
            for method, kind in inspect.getmembers(type(attribute), lambda each: isinstance(each, (call, listing))):
                yield f"{type(attribute).__name__}.{method}", (name, method, kind)


def arguments(name: str, method: Any, *, with_app: bool) -> dict[str, Any]:
    return {
        parameter: SPECIAL.get((name, parameter), ARGUMENTS.get(parameter, parameter))
        for parameter in list(inspect.signature(method._method).parameters)[1:]
        if with_app or (name, parameter) != ("Audit.list", "app_id")
    }


async def ask_all(server: Scripted) -> dict[str, list[web.BaseRequest]]:
    """The requests of every method, by its name."""
    asked = {}
    async with scripted(server, attempts=1) as client:
        for name, (resource, method, kind) in methods(client):
            bound = getattr(getattr(client, resource) if resource else client, method)
            for with_app in (False, True):
                try:
                    answer = bound(**arguments(name, kind, with_app=with_app))
                    _ = [each async for each in answer] if isinstance(kind, listing) else await answer
                except CarillonError:
                    pass
            asked[name] = server.asked.copy()
            server.asked.clear()
    return asked


class Refusing(Scripted):
    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.asked.append(request)
        return web.Response(status=400)


def pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)))


async def operations(house: House) -> dict[tuple[str, str], dict[str, Any]]:
    document = (await house.admin.get("/openapi.json")).json
    return {
        (method.upper(), path): operation
        for path, described in document["paths"].items()
        for method, operation in described.items()
    }


def route_of(request: web.BaseRequest, routes: Any) -> tuple[str, str] | None:
    found = [
        (method, path) for method, path in routes if method == request.method and pattern(path).fullmatch(request.path)
    ]
    return min(found, key=lambda each: each[1].count("{"), default=None)


async def test_every_route_has_a_method_and_every_method_a_route(house: House) -> None:
    routes = await operations(house)
    asked = await ask_all(Refusing())
    known = {*routes, *COMING}
    reached = {name: {route_of(request, known) for request in requests} for name, requests in asked.items()}
    assert {name for name, found in reached.items() if None in found or not found} == set()
    assert set(routes) - set().union(*reached.values()) == FOR_NO_CLIENT


async def test_methods_take_all_that_their_route_takes(house: House) -> None:
    routes = await operations(house)
    taken: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for name, requests in (await ask_all(Refusing())).items():
        for request in requests:
            route = route_of(request, {*routes, *COMING})
            assert route is not None, name
            taken[route] |= {*request.query}
            changes = "x-act" in routes.get(route, {}) and "dryRun" not in request.query
            assert not changes or "x-carillon-reason" in request.headers, name
            assert (request.method == "POST") == ("Idempotency-Key" in request.headers), name
    for route, operation in routes.items():
        query = {each["name"] for each in operation["parameters"] if each["in"] == "query"}
        assert route in FOR_NO_CLIENT or query - {"cursor"} <= taken[route], route


def fields(schema: dict[str, Any], components: dict[str, Any], path: str = "") -> dict[str, Any]:
    """The fields of an answer, and those of what stands in them, by their paths."""
    named = components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "items" in named:
        return fields(named["items"], components, path)
    found: dict[str, Any] = {}
    for part in [named, *named.get("anyOf", [])]:
        for name, inner in part.get("properties", {}).items():
            found |= {f"{path}{name}": inner} | fields(inner, components, f"{path}{name}.")
    for part in named.get("anyOf", []):
        found |= fields(part, components, path)
    return found


def fields_of(kind: Any) -> set[str]:
    """The fields that a method's answer is read into."""
    if get_origin(kind) in {tuple, AsyncGenerator}:
        kind = get_args(kind)[0]
    if not (isinstance(kind, type) and issubclass(kind, Struct)):
        return set()
    (schema,), components = msgspec.json.schema_components([kind])
    return set(fields(schema, components))


@pytest.mark.parametrize("each_client", [AsyncCarillon], indirect=True)
async def test_a_view_shows_all_that_an_answer_tells(house: House) -> None:
    document = (await house.admin.get("/openapi.json")).json
    routes, asked = await operations(house), await ask_all(Refusing())
    async with AsyncCarillon("http://127.0.0.1:1") as client:
        kinds = {name: get_type_hints(kind._method)["return"] for name, (_, _, kind) in methods(client)}
    missing = {}
    for name, requests in asked.items():
        shown = fields_of(kinds[name])
        for route in {route_of(request, {*routes, *COMING}) for request in requests if "dryRun" not in request.query}:
            if not shown or route not in routes:
                continue
            answers = routes[route]["responses"]
            content = next(answers[status] for status in ("201", "202", "200") if status in answers)["content"]
            told = set(fields(content["application/json"]["schema"], document["components"]["schemas"]))
            assert told, name
            missing[name] = {path for path in told - shown if not LEFT_OUT.search(path)}
    assert {name: paths for name, paths in missing.items() if paths} == {}
