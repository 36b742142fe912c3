"""Fields of an account, read into a shape: what is missing, unknown or of another type is told by its name."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from shared.domain.errors import Invalid

Shape = TypeVar("Shape")

_PLACE = re.compile(r" - at `\$\.?(?P<place>[^`]*)`$")
_NAMED = re.compile(r"field `(?P<name>[^`]*)`")


def read_fields(fields: Mapping[str, Any], shape: type[Shape], prefix: str = "") -> Shape:
    """The fields as this struct. Raises `Invalid`, which names a field behind `prefix`, and shows no value."""
    try:
        return msgspec.convert(dict(fields), shape)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), prefix) from None


def _invalid(text: str, prefix: str) -> Invalid:
    place = found["place"].removesuffix("[...]") if (found := _PLACE.search(text)) else ""
    rule = _PLACE.sub("", text)
    named = found["name"] if (found := _NAMED.search(rule)) else ""
    field = ".".join(filter(None, [prefix, place, named]))
    return Invalid(rule[:1].lower() + rule[1:], field=field or None)
