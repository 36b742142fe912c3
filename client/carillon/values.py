"""Instants of the values that cross HTTP, and their JSON."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Self, overload

import msgspec
from msgspec import field

from carillon.wire import Short

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_utc(instant: datetime, field: str) -> datetime:
    """The instant in UTC. Raises `ValueError` if it has no zone, because the moment would be unknown."""
    if instant.utcoffset() is None:
        raise ValueError(f"{field}: an instant needs a time zone, as in datetime(..., tzinfo=UTC), not {instant!r}")
    return instant.astimezone(UTC)


def wall_clock(time: datetime, field: str) -> datetime:
    """The time on clocks everywhere, as if it were UTC. Raises `ValueError` where it is the time of another zone."""
    if time.utcoffset():
        reason = "a localized job starts at this time on each zone's clocks: leave out tzinfo in"
        raise ValueError(f"{field}: {reason} {time!r}")
    return time.replace(tzinfo=UTC)


def written(instant: datetime, field: str) -> str:
    """RFC 3339. Raises `ValueError` as `in_utc`."""
    return in_utc(instant, field).replace(tzinfo=None).isoformat() + "Z"


def nanoseconds(instant: datetime | None, field: str) -> int:
    """Nanoseconds since 1970, 0 for none. Raises `ValueError` as `in_utc`."""
    return 0 if instant is None else (in_utc(instant, field) - _EPOCH) // timedelta(microseconds=1) * 1_000


def from_nanoseconds(count: int) -> datetime | None:
    """The instant, `None` for 0; what is finer than a microsecond is cut off."""
    return _EPOCH + timedelta(microseconds=count // 1_000) if count else None


class Instant:
    """The aware datetime of a field of nanoseconds: `starts_at = Instant("…")` reads `starts_at_ns`."""

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._field = f"{name}_ns"

    @overload
    def __get__(self, thing: None, kind: type) -> Self: ...
    @overload
    def __get__(self, thing: object, kind: type) -> datetime | None: ...
    def __get__(self, thing: object, kind: type) -> Self | datetime | None:
        return self if thing is None else from_nanoseconds(getattr(thing, self._field))


class CreatedAt(Short, frozen=True, kw_only=True, rename="camel"):
    """An answer with the time of its creation."""

    created_at_ns: int = field(name="createdAt", default=0)

    created_at = Instant("When it was created.")


class UpdatedAt(CreatedAt, frozen=True, kw_only=True, rename="camel"):
    """An answer with the times of its creation and of its last change."""

    updated_at_ns: int = field(name="updatedAt", default=0)

    updated_at = Instant("When it was changed last.")


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
