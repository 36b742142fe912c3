"""Bodies that are read strictly: one JSON value in UTF-8, in which a field that nobody knows is refused by its name,
case matters, and no type stands in for another. So do the routes that Marathon did not have."""

import json
from codecs import BOM_UTF8
from collections import Counter
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from shared.domain.errors import Invalid
from shared.domain.plain_words import Types, find_json_fault, read_mistake, types_of, types_within

T = TypeVar("T")


def decode_body(content: bytes, decoder: msgspec.json.Decoder[T], *, is_checked_later: bool = False) -> T:
    """The body as the decoder's type. If each part of it `is_checked_later`, duplicate keys are found then. Raises
    `Invalid`, which names the field where there is one."""
    content = content.removeprefix(BOM_UTF8)
    try:
        content.decode()
        body = decoder.decode(content)
        if not is_checked_later:
            _check_keys(content, decoder.type)
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


def _check_keys(content: bytes, kind: Any) -> None:
    """Raise `Invalid` if one key of the body has two values, as readers disagree about which of them counts. A part
    that is not read, such as a payload, is passed on as it came."""
    seen = False

    def note(pairs: list[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
        nonlocal seen
        seen = seen or len({key for key, _ in pairs}) < len(pairs)
        return tuple(pairs)

    whole = json.loads(content, object_pairs_hook=note, parse_int=str, parse_float=str)
    if seen:
        _check_objects(whole, types_of(kind), "")


def _check_objects(value: Any, types: Types, path: str) -> None:
    """Look at an object (a tuple of pairs) or an array, and at what lies in it."""
    own = [each for each in types if not isinstance(each, inspect.RawType)]
    if not own:
        return
    if isinstance(value, list):
        for index, each in enumerate(value):
            _check_objects(each, types_within(own, ""), f"{path}[{index}]")
    elif isinstance(value, tuple):
        counts = Counter(key for key, _ in value)
        for key, inner in value:
            name = f"{path}.{key}" if path else key
            if counts[key] > 1:
                raise Invalid(f"the body has the key {name!r} twice: remove one", field=name)
            _check_objects(inner, types_within(own, key), name)
