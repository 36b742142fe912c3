"""The body of a request as JSON, and numbers that no float holds."""

import math
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(decimal_format="number")


def read_decimal(text: str) -> float | Decimal:
    """A number with a point or an exponent: a `Decimal` if a float would change it."""
    number = float(text)
    try:
        exact = Decimal(text)
    except InvalidOperation:
        return number
    return number if math.isfinite(number) and Decimal(repr(number)) == exact else exact


def encode(body: Any) -> bytes:
    """The body as JSON. Raises `ValueError`, which names the field, for NaN and infinity: JSON has neither, and they
    would be sent as null."""
    content = _encoder.encode(body)
    if b"null" in content:
        _check_numbers(msgspec.to_builtins(body, enc_hook=str), "")
    return content


def _check_numbers(value: Any, field: str) -> None:
    match value:
        case float() | Decimal() if not math.isfinite(value):
            raise ValueError(f"{field or 'the body'}: JSON has no {value}, only finite numbers")
        case dict():
            for key, inner in value.items():
                _check_numbers(inner, f"{field}.{key}" if field else str(key))
        case list() | tuple():
            for index, inner in enumerate(value):
                _check_numbers(inner, f"{field}[{index}]")
        case _:
            pass
