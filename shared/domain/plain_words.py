"""Plain words in place of a library's: for a text that is not JSON, and for a wrong value. A walk through the parts of
a type tells what may stand in a field."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NoReturn

from msgspec import inspect

from shared.domain.errors import suggest

_MISTAKE = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?", re.DOTALL)
_MISMATCH = re.compile(r"Expected `(?P<wanted>.+)`, got `(?P<got>.+?)`")
_RULE = re.compile(r"Expected `(?P<wanted>[^`]+)`(?P<rule> .+)", re.DOTALL)
_FIELD = re.compile(r"Object (?P<fault>missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)
_VALUE = re.compile(r"Invalid (?:enum )?value (?P<value>.+)", re.DOTALL)
_STEP = re.compile(r"\.\.\.|[^.\[\]]+")
_NAMES = {
    "array": "an array",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "null": "null",
    "object": "an object",
    "str": "a string",
}

_JSON_FAULTS = {
    "Expecting property name": "a key in double quotes is missing",
    "Expecting value": "a value is missing",
    "Expecting ':'": "a colon is missing",
    "Expecting ','": "a comma or a closing bracket is missing",
    "Unterminated string": "a string has no closing quote",
    "Invalid control character": "a string contains a line end or a tab: write \\n or \\t",
    "Invalid \\": "a backslash in a string escapes nothing: write two",
    "Extra data": "more text follows the value",
}

Types = Sequence[inspect.Type]


def find_json_fault(text: str) -> str:
    """The place at which a text stops being JSON, and the reason."""
    try:
        json.loads(text, parse_int=str, parse_constant=_refuse_constant)
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return describe_json_fault(error)
    return "a text in it is not Unicode"


def describe_json_fault(error: ValueError) -> str:
    """The same by the error of Python's reader."""
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    why = next((why for begin, why in _JSON_FAULTS.items() if error.msg.startswith(begin)), error.msg)
    return f"at line {error.lineno}, column {error.colno}, {why}"


def read_mistake(text: str, kind: Any = None, *, subject: str = "the body") -> tuple[str, str]:
    """The sentence, and the path of the value that it is about; `""` for the `subject`, which is all that was read. By
    the `kind` that was to be read, the sentence lists choices and suggests the nearest field."""
    match = _MISTAKE.fullmatch(text)
    what, path = (match["what"], match["path"] or "") if match else (text, "")
    subject = path or subject
    if field := _FIELD.fullmatch(what):
        name = f"{path}.{field['name']}" if path else field["name"]
        if field["fault"] == "missing required":
            return f"the field {name!r} is needed", name
        return f"there is no field {name!r}{suggest(field['name'], _field_names(kind, path))}", name
    if mismatch := _MISMATCH.fullmatch(what):
        return f"{subject} must be {_name(mismatch['wanted'])}, not {_name(mismatch['got'])}", path
    if rule := _RULE.fullmatch(what):
        return f"{subject} must be {_name(rule['wanted'])}{rule['rule'].replace('`', '')}", path
    if value := _VALUE.fullmatch(what):
        choices = ", ".join(_choices(kind, path))
        told = f"must be one of {choices}, not" if choices else "cannot be"
        return f"{subject} {told} {value['value']}", path
    return what, path


@lru_cache(maxsize=1_024)
def types_of(kind: Any) -> Types:
    """The types that a value of this kind may have: each type of a union by itself."""
    return tuple(_alternatives(inspect.type_info(kind)))


def types_within(types: Types, name: str) -> Types:
    """The types that the field, the key or the place of this name may have in a value of one of these types."""
    return [within for each in types for part in _parts(each, name) for within in _alternatives(part)]


def _parts(kind: inspect.Type, name: str) -> Iterator[inspect.Type]:
    match kind:
        case inspect.StructType():
            if name == kind.tag_field:
                yield inspect.LiteralType((kind.tag,))
            yield from (field.type for field in kind.fields if field.encode_name == name)
        case inspect.DictType():
            yield kind.value_type
        case inspect.ListType() | inspect.VarTupleType():
            yield kind.item_type
        case inspect.AnyType():
            yield kind
        case _:
            pass


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    match kind:
        case inspect.UnionType():
            for each in kind.types:
                yield from _alternatives(each)
        case inspect.Metadata():
            yield from _alternatives(kind.type)
        case _:
            yield kind


def _types_at(kind: Any, path: str) -> Types:
    types: Types = () if kind is None else types_of(kind)
    for name in _STEP.findall(path):
        types = types_within(types, name)
    return types


def _choices(kind: Any, path: str) -> list[str]:
    choices: list[str] = []
    for each in _types_at(kind, path):
        match each:
            case inspect.EnumType():
                choices += [str(member.value) for member in each.cls]
            case inspect.LiteralType():
                choices += map(str, each.values)
            case inspect.StructType() | inspect.DictType():
                choices.append("an object")
            case _:
                pass
    return choices


def _field_names(kind: Any, path: str) -> list[str]:
    structs = (each for each in _types_at(kind, path) if isinstance(each, inspect.StructType))
    return [field.encode_name for each in structs for field in each.fields]


def _name(kinds: str) -> str:
    return " or ".join(_NAMES.get(kind, kind) for kind in kinds.split(" | ") if kind != "null" or kinds == "null")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a value of JSON")
