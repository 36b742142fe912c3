"""Fields of an account, read into a struct; an error names the missing, unknown or mistyped field."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from shared.domain.errors import Invalid
from shared.domain.plain_words import read_mistake

Shape = TypeVar("Shape")


def read_fields(fields: Mapping[str, Any], shape: type[Shape], prefix: str = "") -> Shape:
    """The fields as this struct. Raises `Invalid`, which names the field after `prefix`, and shows no value but of a
    choice."""
    try:
        return msgspec.convert(dict(fields), shape)
    except msgspec.ValidationError as error:
        what, path = read_mistake(str(error), shape)
        field = ".".join(filter(None, [prefix, path.removesuffix("[...]")]))
        raise Invalid(what, field=field or None) from None
