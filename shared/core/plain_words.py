"""Plain words in place of a library's, for a text that is not JSON and for a wrong value. A walk through the parts of a
type finds the valid values of a field. Also numbers in people's notation, and limits of JSON that Carillon stores or
passes on."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import msgspec
from msgspec import Raw, inspect

from shared.core.errors import suggest

_MISTAKE = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?", re.DOTALL)
_MISMATCH = re.compile(r"Expected `(?P<wanted>.+)`, got `(?P<got>.+?)`")
_RULE = re.compile(r"Expected `(?P<wanted>[^`]+)`(?P<rule> .+)", re.DOTALL)
_FIELD = re.compile(r"Object (?P<fault>missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)
_VALUE = re.compile(r"Invalid (?:enum )?value (?P<value>.+)", re.DOTALL)
_STEP = re.compile(r"\.\.\.|[^.\[\]]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]*|[1-9][0-9]{0,2}(?:,[0-9]{3})+)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[+-]?(?:[0-9]+|[1-9][0-9]{0,2}(?:,[0-9]{3})+)")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+")
_THOUSAND_OR_ONE = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{2}0")
_LONG_INTEGER = re.compile(r"[0-9]{4301}")
_MOST_DIGITS = 400
_SURE_DIGITS, _MOST_KEPT_DIGITS = 15, 17  # of a float
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_AS_ARRAYS, _NO_BRACKETS = bytes.maketrans(b"{}", b"[]"), bytes(set(range(256)) - set(b"[]{}"))
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

JSON_DEPTH = 64
"""Maximum nesting of JSON that is stored or passed on. MongoDB nests documents at most 100 deep, and a job's copy of a
template is a few levels down already; many receivers read no deeper."""
NOT_EXACT = "is a number that 64 bits cannot keep: write fewer digits, or a string"

Types = Sequence[inspect.Type]
Paths = Sequence[tuple[str, ...]]

HANDED_ON: Paths = (("callback", "data", "payload"), ("events", "data"))
"""The parts of the API's answers that Carillon passes on unchanged."""


def read_typed_number(text: str, *, whole: bool = False) -> int | float:
    """The number that a person typed: `7`, `0.5`, `1,000`, `12,345.5`, `1e-05`. A text with another value in other
    countries is refused. The text of a `ValueError` explains the notation."""
    text = text.strip()
    digits = text.replace(",", "")
    if _WHOLE.fullmatch(text) and len(text) <= _MOST_DIGITS:
        return int(digits) if abs(int(digits)) < 2**64 else float(digits)
    if whole:
        raise ValueError("a whole number is needed: write digits only, as in 1000")
    if _THOUSAND_OR_ONE.fullmatch(text):
        raise ValueError(f"{text} has two meanings: write {text.replace('.', '')} or {float(text)}")
    if any(map(str.isdigit, text)) and _NUMBER.fullmatch(text) and math.isfinite(number := float(digits)):
        return number
    example = text.replace(",", ".") if _DECIMAL_COMMA.fullmatch(text) and len(text) < 20 else "0.5"
    raise ValueError(f"a number is needed: write {example.replace('.', '0.', 1) if example[0] == '.' else example}")


def is_exact(number: str) -> bool:
    """Whether a float of 64 bits keeps this number of JSON, in any notation of the float."""
    if len(number) <= _SURE_DIGITS and "e" not in number and "E" not in number:
        return True
    held, digits = float(number), _digits_of(number)
    if len(digits) <= _SURE_DIGITS and (not digits or 1e-300 < abs(held) < math.inf):
        return True
    if len(digits) > _MOST_KEPT_DIGITS or not math.isfinite(held):
        return False
    return digits == _digits_of(repr(held)) or digits == _digits_of(f"{held:.17g}")


def _digits_of(number: str) -> str:
    return number.lower().partition("e")[0].replace(".", "").lstrip("-0").rstrip("0")


def is_deeper(written: bytes, depth: int) -> bool:
    """Whether this valid JSON is nested deeper than `depth`. A look at each of its values would take longer than
    parsing."""
    if written.count(b"[") + written.count(b"{") <= depth:
        return False
    brackets = _TEXT.sub(b"", written).translate(_AS_ARRAYS, _NO_BRACKETS)
    for _ in range(depth):
        brackets = brackets.replace(b"[]", b"")  # only the innermost ones
    return bool(brackets)


def decode_but(content: bytes | str, paths: Paths = HANDED_ON) -> Any:
    """The JSON as values. Each part at one of these paths remains text, a `msgspec.Raw`, because it is only passed on
    and may contain values that Python would change. The same applies to a number that a float would change."""
    text = (content.encode() if isinstance(content, str) else bytes(content)).lstrip()
    wanted = [path for path in paths if f'"{path[0]}"'.encode() in text]
    if wanted and text.startswith(b"["):
        return [decode_but(bytes(each), wanted) for each in msgspec.json.decode(text, type=list[Raw])]
    if not wanted or not text.startswith(b"{"):
        return _decoder.decode(text)
    fields = msgspec.json.decode(text, type=dict[str, Raw])
    return {name: _decode_part(part, [path[1:] for path in wanted if path[0] == name]) for name, part in fields.items()}


def _keep_float(text: str) -> float | Raw:
    return float(text) if is_exact(text) else Raw(text.encode())


_decoder = msgspec.json.Decoder(float_hook=_keep_float)


def _decode_part(part: Raw, paths: Paths) -> Any:
    return part.copy() if () in paths else decode_but(bytes(part), paths)


def find_json_fault(text: str) -> str:
    """The place at which a text stops being JSON, and the reason."""
    try:
        json.loads(text, parse_int=str, parse_constant=_refuse_constant)
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return describe_json_fault(error)
    if _LONG_INTEGER.search(text):
        return "a number in it has over 4,300 digits"
    return "a text in it has half of a surrogate pair, such as \\ud800"


def describe_json_fault(error: ValueError) -> str:
    """The same from the error of Python's parser."""
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    why = next((why for begin, why in _JSON_FAULTS.items() if error.msg.startswith(begin)), error.msg)
    return f"at line {error.lineno}, column {error.colno}, {why}"


def read_mistake(text: str, kind: Any = None, *, subject: str = "the body") -> tuple[str, str]:
    """The sentence, and the path of the wrong value; `""` for the `subject`, the whole input. With the expected `kind`,
    the sentence lists choices and suggests the nearest field."""
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
    """The possible types of a value of this kind: each type of a union separately."""
    return tuple(_alternatives(inspect.type_info(kind)))


def types_within(types: Types, name: str) -> Types:
    """The possible types of the field, the key or the place of this name in a value of one of these types."""
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
