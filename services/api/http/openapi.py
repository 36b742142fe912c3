"""The OpenAPI 3.1 document, made from the routes themselves and from what msgspec says of their types."""

import re
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from inspect import cleandoc
from typing import Any, get_args

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

from services.api.http import bodies
from services.api.http.errors import PROBLEM, Problem
from services.api.http.identity import EMAIL_HEADER
from services.api.http.rights import EVERYBODY, KNOWN, May, Of, OnBus, Who
from services.api.http.routes import Parameter, Route

Json = dict[str, Any]
_RULES_AGAINST_UNSET = {"minLength", "minProperties", "pattern"}
_TEMPLATE = "#/components/schemas/{name}"
_WIDTHS = {"integer": "int64", "number": "double"}
_NULL = {"type": "null"}
_TYPE_ARGUMENTS = re.compile(r"(?<=[A-Za-z])[\[_].*")


class Schemas:
    """The schemas of these types. `named` has those that others refer to, by their names in the document. Types of
    `carillon.wire` have `limits`, and the API refuses unknown fields of those that are `read`."""

    def __init__(self, kinds: Iterable[Any], limits: bodies.Checks, read: Sequence[Any]) -> None:
        kinds = list(kinds)
        _, found = msgspec.json.schema_components(kinds, ref_template=_TEMPLATE)
        for body in {body for kind in kinds for body in _bodies(kind)}:
            found[body.__name__] |= _body_fields(found[body.__name__]["properties"])
        for name in msgspec.json.schema_components(read, ref_template=_TEMPLATE)[1]:
            found[name]["additionalProperties"] = False
        ruled = {_public(kind.__name__): fields for kind, fields in limits.items()}
        structs = _find_structs(kinds)
        self.named: Json = {}
        for name, schema in found.items():
            for field, rule in ruled.get(_public(name), {}).items():
                _add_limit(schema["properties"][field], rule)
            if (kind := structs.get(name.partition("_")[0])) is not None and "additionalProperties" not in schema:
                _describe_answer(kind, schema)
            self._name(_public(name), self.complete({**schema, "title": ""}))

    def of(self, *kinds: Any) -> Json:
        schemas, _ = msgspec.json.schema_components(kinds, ref_template=_TEMPLATE)
        if len(schemas) == 1:
            return self.complete(schemas[0])
        names = [_public(kind.__name__) for kind in kinds]
        about = {"title": "Or".join(names), "description": f"One of {', '.join(names)}."}
        return self.complete(about | {"anyOf": list(schemas)})

    def complete(self, schema: Json) -> Json:
        """The schema with additions for generators. A schema with a title is found under it, among the named ones."""
        whole = {keyword: self._complete_part(keyword, value) for keyword, value in schema.items()}
        if "enum" in whole:
            whole = {"type": "string"} | whole
        if whole.get("type") in _WIDTHS:
            whole = {"format": _WIDTHS[whole["type"]]} | whole
        if "anyOf" in whole:
            whole = _union(whole)
        if not whole.get("default") or isinstance(whole["default"], dict):  # says nothing, or its own fields say it
            whole.pop("default", None)
        return self._refer_to(whole) if whole.get("title") else whole

    def _complete_part(self, keyword: str, value: Any) -> Any:
        match keyword, value:
            case "$ref", _:
                return _public(value)
            case "discriminator", {"mapping": mapping}:
                return value | {"mapping": {tag: _public(reference) for tag, reference in mapping.items()}}
            case "properties", _:
                return {name: self.complete(inner) for name, inner in value.items()}
            case "anyOf", _:
                return [self.complete(inner) for inner in value]
            case "items" | "additionalProperties", {}:
                return self.complete(value)
            case _:
                return value

    def _refer_to(self, whole: Json) -> Json:
        whole.pop("default", None)  # generators cannot write one down
        self._name(whole["title"], whole)
        return {"$ref": _TEMPLATE.format(name=whole["title"])}

    def _name(self, name: str, schema: Json) -> None:
        schema["title"] = name
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])
        if self.named.setdefault(name, schema) != schema:
            raise ValueError(f"two schemas are called {name}")


def _public(name: str) -> str:
    """The name in the document, or the reference with it: without the parameters of a generic type."""
    return _TYPE_ARGUMENTS.sub("", name).replace("/Stored", "/").removeprefix("Stored").removesuffix("View")


def _add_limit(schema: Json, rule: bodies.Between | bodies.OneOf) -> None:
    for kind in schema.get("anyOf", [schema]):
        match rule:
            case bodies.Between(least, most) if kind.get("type") in _WIDTHS:
                kind.update(minimum=least, maximum=most)
            case bodies.OneOf(values, _) if kind.get("type") == "string":
                kind.update(enum=sorted(values))
            case _:
                pass


def _find_structs(kinds: Iterable[Any]) -> dict[str, type[Struct]]:
    """The types of `carillon.wire` among these and in their fields, by name."""
    shapes = [shape for kind in kinds for shape in bodies.shapes_of(kind)]
    for shape in shapes:
        shapes += [inner for within in shape.fields.values() for inner in within]
    return {shape.kind.__name__: shape.kind for shape in shapes if shape.kind.__module__.startswith("carillon.wire")}


def _describe_answer(kind: type[Struct], schema: Json) -> None:
    """An answer has all fields, or leaves out those without a value: then none is null. It has no default."""
    for rule in schema["properties"].values():
        rule.pop("default", None)
    if not kind.__struct_config__.omit_defaults:
        schema["required"] = list(schema["properties"])
        return
    for field, rule in schema["properties"].items():
        kinds = [each for each in rule.get("anyOf", ()) if each != _NULL]
        schema["properties"][field] = kinds[0] if len(kinds) == 1 else rule


def _union(whole: Json) -> Json:
    """The types of Carillon's unions exclude each other, so a value has one of them."""
    kinds = whole.pop("anyOf")
    if _NULL not in kinds:
        return whole | {"oneOf": kinds}
    rest = [kind for kind in kinds if kind != _NULL]
    if len(rest) == 1 and isinstance(rest[0].get("type"), str):
        return {**rest[0], **whole, **_nullable(rest[0])}
    return whole | {"oneOf": [*rest, _NULL]}


def _nullable(schema: Json) -> Json:
    either = {"type": [schema["type"], "null"]}
    return either | {"enum": [*schema["enum"], None]} if "enum" in schema else either


def _bodies(kind: Any) -> Iterator[type[bodies.Body]]:
    if isinstance(kind, type) and issubclass(kind, bodies.Body):
        yield kind
    for part in get_args(kind):
        yield from _bodies(part)


def _body_fields(properties: Json) -> Json:
    """A field whose unset value breaks its rule is required; any other may be null, which means absent."""
    needed = [name for name, schema in properties.items() if _breaks_when_unset(schema)]
    return {
        "properties": {
            name: {key: schema[key] for key in schema if key != "default"} if name in needed else _or_null(schema)
            for name, schema in properties.items()
        },
        "required": needed,
    }


def _breaks_when_unset(schema: Json) -> bool:
    if "enum" in schema:
        return schema["default"] not in schema["enum"]
    return bool(_RULES_AGAINST_UNSET & schema.keys())


def _or_null(schema: Json) -> Json:
    if _NULL in schema.get("anyOf", ()):
        return schema
    about = {key: schema[key] for key in ("description", "default") if key in schema}
    rule = {key: value for key, value in schema.items() if key not in about}
    return about | {"anyOf": [rule, _NULL]}


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
# The names in paths of several subjects.
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
    kinds = [Problem, *(kind for route in routes for kind in _kinds(route))]
    limits = bodies.Checks({kind: fields for route in routes for kind, fields in (route.limits or {}).items()})
    schemas = Schemas(kinds, limits, [route.body for route in routes if route.body and route.limits])
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
