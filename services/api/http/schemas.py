"""The schemas of the OpenAPI document: what msgspec says of our types, and what generators of clients need besides.

A generator makes types of schemas. It must be told the type of an enumeration, the width of a number (without one, Go
gives integers 32 bits, too few for an instant in nanoseconds), and the name of each union. Types are named as in the
docs: a `JobView` here is a `Job` there.
"""

from collections.abc import Iterable, Iterator
from inspect import cleandoc
from typing import Any, get_args

import msgspec

from services.api.http import wire

Json = dict[str, Any]

_RULES_AGAINST_UNSET = {"minLength", "minProperties", "pattern"}
_TEMPLATE = "#/components/schemas/{name}"
_WIDTHS = {"integer": "int64", "number": "double"}
_NULL = {"type": "null"}


class Schemas:
    """The schemas of these types. `named` has those that others refer to, by their names in the document."""

    def __init__(self, kinds: Iterable[Any]) -> None:
        kinds = list(kinds)
        _, found = msgspec.json.schema_components(kinds, ref_template=_TEMPLATE)
        for body in {body for kind in kinds for body in _bodies(kind)}:
            found[body.__name__] |= _body_fields(found[body.__name__]["properties"])
        self.named: Json = {}
        for name, schema in found.items():
            self._name(_public(name), self.complete({**schema, "title": ""}))

    def of(self, *kinds: Any) -> Json:
        """The schema of a value of one of these types."""
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
    """The name in the document, or the reference with it."""
    return name.removesuffix("View")


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


def _bodies(kind: Any) -> Iterator[type[wire.Body]]:
    if isinstance(kind, type) and issubclass(kind, wire.Body):
        yield kind
    for part in get_args(kind):
        yield from _bodies(part)


def _body_fields(properties: Json) -> Json:
    """A field whose unset value breaks its rule is required; any other may be null, which means absent."""
    needed = [name for name, schema in properties.items() if _breaks_when_unset(schema)]
    return {
        "properties": {
            name: _without_default(schema) if name in needed else _or_null(schema)
            for name, schema in properties.items()
        },
        "required": needed,
    }


def _breaks_when_unset(schema: Json) -> bool:
    if "enum" in schema:
        return schema["default"] not in schema["enum"]
    return bool(_RULES_AGAINST_UNSET & schema.keys())


def _without_default(schema: Json) -> Json:
    return {key: value for key, value in schema.items() if key != "default"}


def _or_null(schema: Json) -> Json:
    if _NULL in schema.get("anyOf", ()):
        return schema
    about = {key: schema[key] for key in ("description", "default") if key in schema}
    rule = {key: value for key, value in schema.items() if key not in about}
    return about | {"anyOf": [rule, _NULL]}
