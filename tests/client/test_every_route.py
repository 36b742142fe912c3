"""Every route of the API has a method in both clients, with all that the route takes: nobody can forget a new one.

Each method is called once, with all of its arguments, on a server that refuses everything and keeps what it was asked.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from aiohttp import web
from msgspec import Struct

from carillon import (
    AsyncCarillon,
    BulkFilter,
    BusSubscription,
    CarillonError,
    Credential,
    CredentialChange,
    Event,
    PushJob,
    RabbitCallback,
    Schedule,
    SingleMessage,
    Suppression,
    Template,
    Token,
    User,
)
from carillon.calls import Resource, call, listing
from tests.client.test_attempts import Scripted, scripted
from tests.services.api.conftest import House
from tests.services.api.published import is_published

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.native,
    pytest.mark.usefixtures("each_client"),
]

# The place of files, which GET /uploadurl tells, recipients' links, which lead to a page, what providers call, the list
# of jobs in Marathon's order, and a recipient in the path, for whom the query is the other way.
FOR_NO_CLIENT = {
    ("GET", "/apps/{appId}/jobs"),
    ("DELETE", "/apps/{appId}/recipients/{address}"),
    ("PUT", "/uploads/{path}"),
    ("GET", "/u/{token}"),
    ("POST", "/u/{token}"),
    ("POST", "/callbacks/{credentialId}"),
    ("POST", "/callbacks/{credentialId}/{messageId}"),
}
OF_THE_CALLER = {
    ("POST", "/schedules"),
    ("POST", "/schedules/bulk"),
    ("PUT", "/schedules/{key}"),
    ("PUT", "/calendars/{calendar}"),
    ("PUT", "/bus/subscriptions/{key}"),
}
# What only Marathon's clients ask for, and the app that stands in each of its templates.
LEFT_OUT = re.compile(
    r"(^|\.)(app|dbPageSize|totalUsers|completedUsers|statusEvents\.(id|jobID|createdAt|events\.(id|statusID)))($|\.)"
)

CALLBACK = RabbitCallback(queue="q", payload={"id": "42"})
SCHEDULE = Schedule(key="k", every_seconds=60, callback=CALLBACK)
ARGUMENTS: dict[str, Any] = {
    "act": "job.stop",
    "anchor": datetime(2030, 1, 1, tzinfo=UTC),
    "bundle_id": "com.example.game",
    "counts": False,
    "by": "+1d",
    "change": CredentialChange(rate=5.0),
    "credential": Credential(name="sms", kind="twilio", secret={"token": "hush"}, test_recipient="+34600000000"),
    "dates": [date(2030, 12, 25)],
    "description": "What is ordered.",
    "event": Event(type="create", url="https://a.example.com/1"),
    "events": [Event(type="create", url="https://a.example.com/1")],
    "expires_at": datetime(2030, 1, 1, tzinfo=UTC),
    "filter": BulkFilter(by="a@example.com"),
    "instant": datetime(2030, 1, 1, tzinfo=UTC),
    "fields": {"from": "x"},
    "job": PushJob(service="apns", template="like"),
    "labels": {"team": "billing"},
    "limit": 2,
    "message": SingleMessage(credential="sms", to="+34600000000", body={"text": "Hi"}),
    "messages": [SingleMessage(credential="sms", to="+34600000000", body={"text": "Hi"})],
    "minutes": 5,
    "move": "stop",
    "on_progress": lambda *_: None,
    "overlap_seconds": 60,
    "page_size": 2,
    "keep_hours": 1,
    "part": 1,
    "schedule": SCHEDULE,
    "secret": {"token": "hush"},
    "schedules": [SCHEDULE],
    "since": datetime(2030, 1, 1, tzinfo=UTC),
    "size": 5,
    "source": __file__,
    "subscription": BusSubscription(callback="https://example.com/hook", topics=["orders"]),
    "suppression": Suppression(channel="mail", address="ana@example.com"),
    "suppressions": [Suppression(channel="mail", address="ana@example.com")],
    "timeout": 50.0,
    "template": Template(name="like", locale="en", body={"alert": "hi"}),
    "templates": [Template(name="like", locale="en", body={"alert": "hi"})],
    "until": datetime(2030, 1, 2, tzinfo=UTC),
    "states": ["failed", "unsent"],
    "token": Token(name="billing"),
    "user": User(email="a@example.com"),
    "within_seconds": 60,
}
# Of one name in several methods.
SPECIAL: dict[tuple[str, str], Any] = {
    ("BusDeliveries.get", "events"): True,
    ("Audit.list", "act"): "job.stop",
    ("Jobs.list", "template"): ["like", "love"],
    ("Jobs.list", "templates"): (),
    ("Jobs.wait", "job"): SimpleNamespace(app_id="app_id", id="job_id"),
    ("Jobs.list_all", "template"): "like",
    ("Jobs.list_all", "templates"): (),
    ("Templates.render", "context"): {"user": "Ana"},
}


def methods(client: AsyncCarillon) -> Iterator[tuple[str, Any]]:
    """What a client offers, by its names."""
    own = getattr(client, "_client", client)  # in threads, the client that is there
    for name, attribute in {"": own, **vars(own)}.items():
        if isinstance(attribute, Resource):
            for method, kind in inspect.getmembers(type(attribute), lambda each: isinstance(each, (call, listing))):
                yield f"{type(attribute).__name__}.{method}", (name, method, kind)


def calls(name: str, method: Any) -> Iterator[dict[str, Any]]:
    """The arguments of each call that a method can make: some ask one of several routes."""
    parameters = list(inspect.signature(method._method).parameters)[1:]
    whole = {each: SPECIAL.get((name, each), ARGUMENTS.get(each, each)) for each in parameters}
    yield whole
    if name == "Audit.list":
        yield {each: given for each, given in whole.items() if each != "app_id"}
    if "move" in whole:
        yield from ({**whole, "move": move} for move in ("pause", "resume"))


async def ask_all(server: Scripted) -> dict[str, list[web.BaseRequest]]:
    """The requests of every method, by its name."""
    asked = {}
    async with scripted(server, attempts=1) as client:
        for name, (resource, method, kind) in methods(client):
            bound = getattr(getattr(client, resource) if resource else client, method)
            for arguments in calls(name, kind):
                try:
                    answer = bound(**arguments)
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
        if not is_published(path)
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
    reached = {name: {route_of(request, routes) for request in requests} for name, requests in asked.items()}
    assert {name for name, found in reached.items() if None in found or not found} == set()
    assert set(routes) - set().union(*reached.values()) == FOR_NO_CLIENT


async def test_methods_take_all_that_their_route_takes(house: House) -> None:
    routes = await operations(house)
    taken: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for name, requests in (await ask_all(Refusing())).items():
        for request in requests:
            route = route_of(request, routes)
            assert route is not None, name
            taken[route] |= {*request.query}
            changes = "x-act" in routes.get(route, {}) and "dryRun" not in request.query
            assert not changes or "x-carillon-reason" in request.headers, name
            assert (request.method == "POST") == ("Idempotency-Key" in request.headers), name
    for route, operation in routes.items():
        # Things are made in the caller's own namespace, which needs no name.
        needless = {"cursor", "limit"} | ({"namespace"} if route in OF_THE_CALLER else set())
        assert route in FOR_NO_CLIENT or query_of(operation) - needless <= taken[route], route


def fields(schema: dict[str, Any], components: dict[str, Any], path: str = "") -> dict[str, Any]:
    """The fields of an answer, and those of what stands in them, by their paths."""
    named = components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "items" in named:
        return fields(named["items"], components, path)
    found: dict[str, Any] = {}
    for part in [named, *named.get("anyOf", []), *named.get("oneOf", [])]:
        for name, inner in part.get("properties", {}).items():
            found |= {f"{path}{name}": inner} | fields(inner, components, f"{path}{name}.")
    for part in [*named.get("anyOf", []), *named.get("oneOf", [])]:
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
    components = (await house.admin.get("/openapi.json")).json["components"]["schemas"]
    routes, asked = await operations(house), await ask_all(Refusing())
    async with AsyncCarillon("http://127.0.0.1:1") as client:
        kinds = {name: get_type_hints(kind._method)["return"] for name, (_, _, kind) in methods(client)}
    missing = {}
    for name, requests in asked.items():
        shown = fields_of(kinds[name])
        for request in requests if shown else ():
            route = route_of(request, routes)
            if route in routes and set(request.query) <= query_of(routes[route]):
                told = [set(fields(each, components)) for each in answers_of(routes[route], components)]
                lacking = [{path for path in each - shown if not LEFT_OUT.search(path)} for each in told]
                missing[name] = min(lacking, key=len) if all(told) else {"nothing is told"}
    assert {name: paths for name, paths in missing.items() if paths} == {}


def query_of(operation: dict[str, Any]) -> set[str]:
    return {each["name"] for each in operation["parameters"] if each["in"] == "query"} | {"limit"}


def answers_of(operation: dict[str, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    """What may be told: one of several things, where a dry run tells of another than the act itself."""
    told = [
        answer["content"]["application/json"]["schema"]
        for status, answer in operation["responses"].items()
        if status.startswith("2") and "content" in answer
    ]
    named = [components.get(schema.get("$ref", "").rpartition("/")[2], {}) for schema in told]
    return [each for schema, whole in zip(told, named, strict=True) for each in whole.get("oneOf", [schema])]
