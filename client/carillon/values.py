"""Base of the values that cross HTTP: their short `repr`, their instants, and their JSON."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Self, overload

import msgspec
from msgspec import Struct, field

_FIRST = ("id", "key", "name", "state", "status", "sent", "failed", "total_tokens", "created_at", "failure")
_MOST = 10
_LONGEST = 40


class Short(Struct, frozen=True):
    """An answer whose `repr` has its main fields that have a value; `msgspec.structs.asdict` gives all fields. A list
    is shown by its length. A long value is left out, unless it is a main one."""

    def __repr__(self) -> str:
        names = [name.removesuffix("_ns") for name in self.__struct_fields__]
        if "state" not in names and hasattr(type(self), "state"):
            names.append("state")
        names.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
        values = {name: value for name in names if (value := getattr(self, name))}
        texts = {name: text for name, value in values.items() if (text := _text_of(name, value))}
        shown = [f"{name}={text}" for name, text in texts.items()][:_MOST]
        more = ["…"] if len(shown) < len(values) else []
        return f"{type(self).__name__}({', '.join(shown + more)})"


class Result(Struct, frozen=True, kw_only=True):
    """The result of one of many items."""

    index: int


def _text_of(name: str, value: Any) -> str:
    """`""` for a value that is not shown."""
    if isinstance(value, tuple | list):
        return f"<{len(value)} item{'s' * (len(value) > 1)}>"
    if isinstance(value, Struct | dict | set | frozenset):
        return ""
    if isinstance(value, datetime):
        value = value.isoformat().replace("+00:00", "Z")
    text = repr(str(value) if isinstance(value, str) else value)
    return text if name in _FIRST or len(text) <= _LONGEST else ""


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
