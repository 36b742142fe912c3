"""Bodies that are read strictly: one JSON value in UTF-8, in which a field that nobody knows is refused by its name,
case matters, and no type stands in for another. So do the routes that Marathon did not have."""

import json
from codecs import BOM_UTF8
from collections import Counter
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from shared.domain.errors import Invalid
from shared.domain.plain_words import (
    JSON_DEPTH,
    NOT_EXACT,
    Types,
    find_json_fault,
    is_deeper,
    is_exact,
    read_mistake,
    types_of,
    types_within,
)

_INTEGERS = range(-(2**63), 2**64)
_SURE_CHARACTERS = 18  # 64 bits keep any 18 digits

T = TypeVar("T")


class _Inexact(str):
    """A number that would be another one after it was read."""

    __slots__ = ()


def decode_body(content: bytes, decoder: msgspec.json.Decoder[T], *, is_checked_later: bool = False) -> T:
    """The body as the decoder's type. With `is_checked_later`, duplicate keys are found when the parts are read. Raises
    `Invalid` with the field, if any."""
    content = content.removeprefix(BOM_UTF8)
    try:
        content.decode()
        body = decoder.decode(content)
        if not is_checked_later:
            _check_values(content, decoder.type)
        return body
    except UnicodeDecodeError:
        raise Invalid("the body is not UTF-8") from None
    except RecursionError:
        raise Invalid("the body is nested too deeply") from None
    except msgspec.ValidationError as error:
        what, path = read_mistake(str(error), decoder.type)
        raise Invalid(what, field=path or None) from None
    except msgspec.DecodeError:
        fault = find_json_fault(content.decode())
        raise Invalid(f"the body is not JSON: {fault}" if content.strip() else "the body is empty") from None


def _check_values(content: bytes, kind: Any) -> None:
    """Raise `Invalid` if a key of the body has two values, because readers disagree about which one counts; if a number
    in a field for any value would change; or if such a field is nested too deep. A part that is not read, such as a
    payload, is passed on as it came."""
    seen = is_deeper(content, JSON_DEPTH)

    def note(pairs: list[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
        nonlocal seen
        seen = seen or len({key for key, _ in pairs}) < len(pairs)
        return tuple(pairs)

    def note_integer(text: str) -> str:
        return text if len(text) <= _SURE_CHARACTERS else note_number(text, len(text) <= 20 and int(text) in _INTEGERS)

    def note_number(text: str, is_kept: bool) -> str:
        nonlocal seen
        seen = seen or not is_kept
        return text if is_kept else _Inexact(text)

    whole = json.loads(
        content,
        object_pairs_hook=note,
        parse_int=note_integer,
        parse_float=lambda text: note_number(text, is_exact(text)),
    )
    if seen:
        _check_objects(whole, types_of(kind), "")


def _check_objects(value: Any, types: Types, path: str, depth: int = 1) -> None:
    """Check an object (a tuple of pairs) or an array, and the values in it."""
    own = [each for each in types if not isinstance(each, inspect.RawType)]
    if not own:
        return
    if depth > JSON_DEPTH and isinstance(value, list | tuple):
        raise Invalid(
            f"the body is nested more than {JSON_DEPTH} deep", field=path.partition(".")[0].partition("[")[0] or None
        )
    if isinstance(value, _Inexact) and any(isinstance(each, inspect.AnyType) for each in own):
        raise Invalid(f"{path or 'the body'} {NOT_EXACT}", field=path or None)
    if isinstance(value, list):
        for index, each in enumerate(value):
            _check_objects(each, types_within(own, ""), f"{path}[{index}]", depth + 1)
    elif isinstance(value, tuple):
        counts = Counter(key for key, _ in value)
        for key, inner in value:
            name = f"{path}.{key}" if path else key
            if counts[key] > 1:
                raise Invalid(f"the body has the key {name!r} twice: remove one", field=name)
            _check_objects(inner, types_within(own, key), name, depth + 1)
