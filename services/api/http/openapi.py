"""The OpenAPI 3.1 document, made from the routes themselves: what a route says of itself is all there is to know."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, get_args

import msgspec
from litestar.handlers import HTTPRouteHandler

from services.api.http import wire
from services.api.http.errors import PROBLEM, Problem
from services.api.http.identity import EMAIL_HEADER
from services.api.http.rights import EVERYBODY, May, Of, Who
from services.api.http.routes import Parameter, Route

Json = dict[str, Any]

TITLE = "Carillon"
DESCRIPTION = (
    "Timed messages at scale: push jobs, exactly once. Clients of Marathon work against these routes as they are. "
    "In a body, `null` is the same as absent. Bodies of apps, templates, jobs, users and tokens are read as Marathon "
    "does: keys are matched without regard to case, and unknown ones are ignored. Those of schedules and dead letters "
    "are read strictly: case matters, and a field that nobody knows is refused by its name. An operation's "
    "`security` names the role that it needs: `app/viewer` over the path's app, `namespace/operator` over the "
    "namespace that `?namespace=` names (everybody is the admin of their own), `admin` over the deployment. A caller "
    "is the admin of each app in their `allowedApps`, and an admin of the deployment may do everything. A viewer's "
    "answers leave personal data out. `x-act` names the act that the audit records."
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
}
RULES_AGAINST_UNSET = {"enum", "minLength", "minProperties", "pattern"}
_PARAMETER = re.compile(r"\{(\w+):(?:str|path)\}")
_WORD = re.compile(r"[A-Za-z0-9]+")
# Of the names that stand in paths of several subjects.
_SEGMENTS: dict[str, Json] = {
    name: {"type": "string", "format": "uuid"}
    for name in ("app_id", "group_id", "job_id", "template_id", "token_id", "user_id")
}


def document(handlers: Iterable[HTTPRouteHandler], *, public_url: str = "") -> Json:
    """The document of these routes, which callers reach below `public_url`."""
    handlers = list(handlers)
    paths: Json = {}
    for handler in handlers:
        route: Route = handler.opt["route"]
        described = paths.setdefault(_PARAMETER.sub(lambda match: f"{{{_camel(match[1])}}}", route.path), {})
        described[route.method.lower()] = _operation(handler.handler_name, route)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": VERSION, "description": DESCRIPTION},
        "servers": [{"url": public_url.rstrip("/") or "/"}],
        "paths": paths,
        "components": {"schemas": _schemas(handlers), "securitySchemes": SECURITY},
    }


def _operation(name: str, route: Route) -> Json:
    named = [_path_parameter(segment, route) for segment in _PARAMETER.findall(route.path)]
    described: Json = {
        "operationId": _camel(name) + _pascal(route.tag),
        "tags": [route.tag],
        "summary": route.summary,
        "security": _security(route.who),
        "parameters": named + [_parameter(parameter) for parameter in route.all_parameters],
        "responses": _responses(route, takes_input=bool(named or route.all_parameters or route.body)),
    }
    if route.act:
        described["x-act"] = route.act
    if route.body is not None:
        schema = {"schema": _schema(route.body)}
        content = dict.fromkeys(route.body_media, schema)
        described["requestBody"] = {"required": route.body_required, "content": content}
    return described


def _security(who: Who) -> list[Json]:
    return [] if who is EVERYBODY else [{name: _roles(who)} for name in SECURITY]


def _roles(who: Who) -> list[str]:
    """OpenAPI 3.1 lets a security requirement of any scheme name the roles that it takes."""
    if not isinstance(who, May):
        return []
    return [who.role] if who.of is Of.DEPLOYMENT else [f"{who.of.value}/{who.role}"]


def _responses(route: Route, *, takes_input: bool) -> Json:
    described: Json = {str(int(status)): _answer(status, kind, route) for status, kind in route.answers.items()}
    problems = {*route.problems, HTTPStatus.MISDIRECTED_REQUEST}
    if route.method != "GET":
        problems |= {HTTPStatus.FORBIDDEN}
    if route.who is not EVERYBODY:
        problems |= {HTTPStatus.UNAUTHORIZED, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE}
        problems |= {HTTPStatus.TOO_MANY_REQUESTS}
    if isinstance(route.who, May):
        problems |= {HTTPStatus.FORBIDDEN}
    if takes_input:
        problems |= {HTTPStatus.UNPROCESSABLE_ENTITY}
    if route.body is not None:
        problems |= {HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
    for status in sorted(problems):
        described[str(int(status))] = {
            "description": status.phrase,
            "content": {PROBLEM: {"schema": _schema(Problem)}},
        }
    return described


def _answer(status: HTTPStatus, kind: Any, route: Route) -> Json:
    described: Json = {"description": status.phrase}
    if kind is not None:
        schemas = [_schema(each) for each in kinds_of(kind)]
        described["content"] = {"application/json": {"schema": {"anyOf": schemas} if len(schemas) > 1 else schemas[0]}}
    if route.paged:
        link = {"description": '`<...>; rel="next"`, if there is a next page.', "schema": {"type": "string"}}
        described["headers"] = {"Link": link}
    return described


def kinds_of(answer: Any) -> tuple[Any, ...]:
    """The types of an answer that may have several."""
    return answer if isinstance(answer, tuple) else (answer,)


def _parameter(parameter: Parameter) -> Json:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _path_parameter(name: str, route: Route) -> Json:
    """A name that nobody describes cannot be told: then the API does not start."""
    schemas = {**_SEGMENTS, **route.segments}
    return {"name": _camel(name), "in": "path", "required": True, "schema": schemas[name]}


def _schema(kind: Any) -> Json:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
    return schema


def _schemas(handlers: list[HTTPRouteHandler]) -> Json:
    routes: list[Route] = [handler.opt["route"] for handler in handlers]
    kinds: list[Any] = [Problem, *(route.body for route in routes if route.body is not None)]
    kinds += [kind for route in routes for each in route.answers.values() if each for kind in kinds_of(each)]
    _, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for body in {part for kind in kinds for part in (kind, *get_args(kind)) if _is_body(part)}:
        components[body.__name__] |= _body_fields(components[body.__name__]["properties"])
    return components


def _body_fields(properties: Json) -> Json:
    """A field whose rule the unset value breaks must be given; any other may be null, which is the same as absent."""
    needed = [name for name, schema in properties.items() if RULES_AGAINST_UNSET & schema.keys()]
    return {
        "properties": {
            name: _without_default(schema) if name in needed else _or_null(schema)
            for name, schema in properties.items()
        },
        "required": needed,
    }


def _without_default(schema: Json) -> Json:
    return {key: value for key, value in schema.items() if key != "default"}


def _is_body(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, wire.Body)


def _or_null(schema: Json) -> Json:
    about = {key: schema[key] for key in ("description", "default") if key in schema}
    rule = {key: value for key, value in schema.items() if key not in about}
    return about | {"anyOf": [rule, {"type": "null"}]}


def _pascal(text: str) -> str:
    return "".join(word.capitalize() for word in _WORD.findall(text))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
