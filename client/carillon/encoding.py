"""The body of a request, as JSON."""

import math
from typing import Any

import msgspec


def encode(body: Any) -> bytes:
    """The body as JSON. Raises `ValueError`, which names the field, for NaN and infinity: JSON has neither, and they
    would be sent as null."""
    content = msgspec.json.encode(body)
    if b"null" in content:
        _check_numbers(msgspec.to_builtins(body, enc_hook=str), "")
    return content


def _check_numbers(value: Any, field: str) -> None:
    match value:
        case float() if not math.isfinite(value):
            raise ValueError(f"{field or 'the body'}: JSON has no {value}, only finite numbers")
        case dict():
            for key, inner in value.items():
                _check_numbers(inner, f"{field}.{key}" if field else str(key))
        case list() | tuple():
            for index, inner in enumerate(value):
                _check_numbers(inner, f"{field}[{index}]")
        case _:
            pass
