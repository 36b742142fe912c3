"""The OpenAPI 3.1 document, made from the routes themselves: what a route says of itself is all there is to know."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from litestar.handlers import HTTPRouteHandler

from services.api.http.errors import PROBLEM, Problem
from services.api.http.identity import EMAIL_HEADER
from services.api.http.rights import EVERYBODY, KNOWN, May, Of, OnBus, Who
from services.api.http.routes import Parameter, Route
from services.api.http.schemas import Json, Schemas

TITLE = "Carillon"
DESCRIPTION = (
    "Timed messages at scale: pushes, mail, SMS, webhooks and events. Clients of Marathon work against these routes as "
    "they are. In a body, `null` is the same as absent. Bodies of apps, templates, users, tokens and jobs are read as "
    "Marathon reads them: keys are matched without regard to case. Unknown keys are ignored, except those of a job: "
    "the API refuses them by their name, unless `api.lenient_jobs` is set. All other bodies are read strictly: case "
    "matters, and the API refuses an unknown field by its name. It also refuses a query parameter that the operation "
    "does not list, that has no value, or that comes twice. An operation's `security` names the role that it needs: "
    "`app/viewer` over the path's app, `namespace/operator` over the namespace that `?namespace=` names (each caller "
    "is the admin of their own namespace), `admin` over the deployment. A caller is the admin of each app in their "
    "`allowedApps`, and an admin of the deployment may do everything. Answers to a viewer leave personal data out. "
    "`x-act` names the act that the audit records."
)
VERSION = "1"
SECURITY: Json = {
    "token": {"type": "http", "scheme": "bearer", "description": "A service's token: see `/tokens`."},
    "person": {
        "type": "apiKey",
        "in": "header",
        "name": EMAIL_HEADER,
        "description": "The e-mail address of a user, believed only from a trusted proxy.",
    },
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "A token of the bus as the user name, with any password: see `/api_tokens`.",
    },
}
_BASIC = "basic"
FILE: Json = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_PARAMETER = re.compile(r"\{(\w+):(?:str|path)\}")
# Of the names that stand in paths of several subjects.
_SEGMENTS: dict[str, Json] = {
    f"{thing}_id": {"type": "string", "format": "uuid", "description": f"The id of the {thing}."}
    for thing in ("app", "group", "job", "template", "token", "user")
}
_ON_BUS = {
    OnBus.CLIENT: "Takes a client of the bus, by basic auth.",
    OnBus.ROOT: "Takes the bus's root, by basic auth: `bus.root_key`, or an admin's token.",
    OnBus.EITHER: "Takes a client of the bus or its root, by basic auth.",
}
_OVER = {
    Of.APP: "over the app",
    Of.NAMESPACE: "over the namespace",
    Of.EVERYTHING: "over everything (`*`)",
}


def document(handlers: Iterable[HTTPRouteHandler], *, public_url: str = "") -> Json:
    """The document of these routes, whose URLs begin with `public_url`."""
    handlers = list(handlers)
    routes: list[Route] = [handler.opt["route"] for handler in handlers]
    schemas = Schemas([Problem, *(kind for route in routes for kind in _kinds(route))])
    paths: Json = {}
    for handler, route in zip(handlers, routes, strict=True):
        described = paths.setdefault(_PARAMETER.sub(lambda match: f"{{{_camel(match[1])}}}", route.path), {})
        described[route.method.lower()] = _operation(handler.handler_name, route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": VERSION, "description": DESCRIPTION},
        "servers": [{"url": public_url.rstrip("/") or "/"}],
        "paths": paths,
        "components": {"schemas": schemas.named, "securitySchemes": SECURITY},
    }


def kinds_of(answer: Any) -> tuple[Any, ...]:
    """The types of an answer that may have several."""
    return answer if isinstance(answer, tuple) else (answer,)


def _kinds(route: Route) -> list[Any]:
    answered = [kind for answer in route.answers.values() if answer for kind in kinds_of(answer)]
    return answered if route.body is None else [route.body, *answered]


def _operation(name: str, route: Route, schemas: Schemas) -> Json:
    named = [_path_parameter(segment, route, schemas) for segment in _PARAMETER.findall(route.path)]
    described: Json = {
        "operationId": _camel(name),
        "tags": [route.tag],
        "summary": route.summary,
        "description": _describe(route),
        "security": _security(route.who),
        "parameters": named + [_parameter(parameter, schemas) for parameter in route.all_parameters],
        "responses": _responses(route, schemas, takes_input=bool(not route.any_query or named or route.body)),
    }
    if route.act:
        described["x-act"] = route.act
    if route.body is not None:
        content = {media: {"schema": schemas.of(route.body)} for media in route.body_media}
        described["requestBody"] = {"required": route.body_required, "content": content}
    elif route.streams:
        described["requestBody"] = {"required": True, "content": FILE}
    return described


def _describe(route: Route) -> str:
    sentences = [_describe_who(route.who)]
    if route.act:
        sentences.append(f"The audit calls it `{route.act}`.")
    if route.ignores_unknown:
        sentences.append("Ignores other query parameters.")
    if route.paged:
        sentences.append("The answer is a page; the header `Link` leads to the next one.")
    return " ".join(sentences)


def _describe_who(who: Who) -> str:
    match who:
        case May(of=Of.DEPLOYMENT):
            return "Takes an admin of the deployment."
        case May(role, of):
            return f"Takes the role `{role}` {_OVER[of]}."
        case OnBus():
            return _ON_BUS[who]
        case _ if who is KNOWN:
            return "Takes a caller who is known."
        case _:
            return "Takes no credentials."


def _security(who: Who) -> list[Json]:
    if who is EVERYBODY:
        return []
    if isinstance(who, OnBus):
        return [{_BASIC: [f"bus/{who.value}"]}]
    return [{name: _roles(who)} for name in SECURITY if name != _BASIC]


def _roles(who: Who) -> list[str]:
    """OpenAPI 3.1 lets a security requirement of any scheme name its roles."""
    if not isinstance(who, May):
        return []
    return [who.role] if who.of is Of.DEPLOYMENT else [f"{who.of.value}/{who.role}"]


def _responses(route: Route, schemas: Schemas, *, takes_input: bool) -> Json:
    described: Json = {str(int(status)): _answer(status, route, schemas) for status in route.answers}
    problems = {*route.problems, HTTPStatus.MISDIRECTED_REQUEST}
    if route.method != "GET":
        problems |= {HTTPStatus.FORBIDDEN}
    if route.who is not EVERYBODY:
        problems |= {HTTPStatus.UNAUTHORIZED, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE}
        problems |= {HTTPStatus.TOO_MANY_REQUESTS}
    if isinstance(route.who, May):
        problems |= {HTTPStatus.FORBIDDEN}
    if takes_input:
        problems |= {HTTPStatus.BAD_REQUEST if isinstance(route.who, OnBus) else HTTPStatus.UNPROCESSABLE_ENTITY}
    if route.body is not None or route.streams:
        problems |= {HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
    for status in sorted(problems):
        described[str(int(status))] = {
            "description": status.phrase,
            "content": {PROBLEM: {"schema": schemas.of(Problem)}},
        }
    return described


def _answer(status: HTTPStatus, route: Route, schemas: Schemas) -> Json:
    described: Json = {"description": status.phrase}
    if route.answers[status] is not None:
        described["content"] = {"application/json": {"schema": schemas.of(*_kinds_answered(status, route))}}
        described["content"] |= {media: {"schema": {"type": "string"}} for media in route.exports}
    if route.paged:
        link = {"description": '`<...>; rel="next"`, if there is a next page.', "schema": {"type": "string"}}
        described["headers"] = {"Link": link}
    return described


def _kinds_answered(status: HTTPStatus, route: Route) -> list[Any]:
    """The types of an answer; for a success those of every success, because generated methods read them as one type."""
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        return [*kinds_of(route.answers[status])]
    successes = [answer for each, answer in route.answers.items() if each < HTTPStatus.MULTIPLE_CHOICES and answer]
    found = [kind for answer in successes for kind in kinds_of(answer)]
    return [kind for index, kind in enumerate(found) if kind not in found[:index]]


def _parameter(parameter: Parameter, schemas: Schemas) -> Json:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": schemas.complete(parameter.schema),
    }


def _path_parameter(name: str, route: Route, schemas: Schemas) -> Json:
    """Raises for a name without a description: then the API does not start."""
    schema = {**_SEGMENTS, **route.segments}[name]
    about = {"name": _camel(name), "in": "path", "required": True, "description": schema.get("description", "")}
    rule = {key: value for key, value in schema.items() if key != "description"}
    return about | {"schema": schemas.complete(rule)}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
