"""Filters: the events of its topics that a subscription wants.

    {"types": [...], "url_prefix": "https://…", "data": [{"path": "/price", "op": "gt", "value": 10}, ...]}

All given parts must hold. A condition on `data` names a place by a JSON pointer (RFC 6901). A missing value equals
nothing: only `exists` with `false`, and `ne`, hold for it. `lt` and `gt` compare numbers with numbers and texts with
texts, and hold for nothing else. Values are equal as in JSON: 1 equals 1.0, but not `true`.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Any, assert_never

import msgspec
from msgspec import Struct, UnsetType

from shared.bus.rules.events import URL_CHARACTERS, BusEvent, is_type
from shared.core.errors import Invalid
from shared.core.plain_words import is_deeper

MOST_TYPES = 100
MOST_CONDITIONS = 10
MOST_ALTERNATIVES = 100
PATH_CHARACTERS = 256
VALUE_CHARACTERS = 1_000
VALUES_CHARACTERS = 2_000
"""The characters of a filter's values together: fan-outs hold all filters, and apply them to each event."""
VALUE_DEPTH = 16

_CHARACTERS_AT_A_TIME = 16
_POINTER = re.compile(r"(/([^~/]|~[01])*)*")
_PLACE = re.compile(r"0|[1-9][0-9]{0,8}")


class Comparison(StrEnum):
    """The comparison of a condition."""

    EQ = "eq"
    NE = "ne"
    IN = "in"
    EXISTS = "exists"
    LT = "lt"
    GT = "gt"


class DataCondition(Struct, frozen=True):
    """A condition on one place in an event's `data`. `value` is JSON as text, because JSON of users is stored as
    such."""

    path: str
    op: Comparison
    value: str = "true"


class EventFilter(Struct, frozen=True):
    types: tuple[str, ...] = ()
    url_prefix: str = ""
    data: tuple[DataCondition, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.types or self.url_prefix or self.data)


class _Missing:
    """The value of a missing place."""


_MISSING = _Missing()


def matches(filter: EventFilter, event: BusEvent) -> bool:
    """Whether the filter, which has passed its checks, accepts the event. It never raises, whatever `data` is."""
    if filter.types and event.type not in filter.types:
        return False
    if not event.url.startswith(filter.url_prefix):
        return False
    if not filter.data:
        return True
    data = _MISSING if isinstance(event.data, UnsetType) else _decode(bytes(event.data))
    return all(_holds(condition, data) for condition in filter.data)


def cost_of(filter: EventFilter) -> int:
    """The highest cost of applying it, in units of some microseconds: long values have many parts to compare."""
    return 1 + sum(1 + len(condition.value) // _CHARACTERS_AT_A_TIME for condition in filter.data)


def check_filter(filter: EventFilter, *, field: str) -> None:
    """Raise `Invalid`, with the part as field, unless this can be a subscription's filter. `field` is the filter's
    name."""
    if len(filter.types) > MOST_TYPES or not all(map(is_type, filter.types)):
        rule = f"must be at most {MOST_TYPES} types, each 1 to 64 of a to z, 0 to 9, '_', '.' and '-'"
        raise Invalid(rule, field=f"{field}.types")
    if len(filter.url_prefix) > URL_CHARACTERS:
        raise Invalid(f"must have at most {URL_CHARACTERS:,} characters", field=f"{field}.url_prefix")
    if len(filter.data) > MOST_CONDITIONS:
        raise Invalid(f"must have at most {MOST_CONDITIONS} conditions", field=f"{field}.data")
    if sum(len(each.value) for each in filter.data) > VALUES_CHARACTERS:
        rule = f"the values must have at most {VALUES_CHARACTERS:,} characters together"
        raise Invalid(rule, field=f"{field}.data")
    for place, condition in enumerate(filter.data):
        _check_condition(condition, field=f"{field}.data[{place}]")


def _check_condition(condition: DataCondition, *, field: str) -> None:
    if len(condition.path) > PATH_CHARACTERS or _POINTER.fullmatch(condition.path) is None:
        rule = f"must be a JSON pointer (RFC 6901), such as /address/city, of at most {PATH_CHARACTERS} characters"
        raise Invalid(rule, field=f"{field}.path", value=condition.path)
    if len(condition.value) > VALUE_CHARACTERS:
        raise Invalid(f"must have at most {VALUE_CHARACTERS:,} characters of JSON", field=f"{field}.value")
    try:
        value = msgspec.json.decode(condition.value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Invalid("must be JSON", field=f"{field}.value") from None
    if is_deeper(condition.value.encode(), VALUE_DEPTH):
        raise Invalid(f"must be nested at most {VALUE_DEPTH} deep", field=f"{field}.value")
    if rule := _broken_rule(condition.op, value):
        raise Invalid(rule, field=f"{field}.value")


def _broken_rule(op: Comparison, value: Any) -> str:
    match op:
        case Comparison.EQ | Comparison.NE:
            return ""
        case Comparison.IN:
            good = isinstance(value, list) and 1 <= len(value) <= MOST_ALTERNATIVES
            return "" if good else f"`in` takes an array of 1 to {MOST_ALTERNATIVES} values"
        case Comparison.EXISTS:
            return "" if isinstance(value, bool) else "`exists` takes true or false"
        case Comparison.LT | Comparison.GT:
            return "" if _is_number(value) or isinstance(value, str) else f"`{op}` takes a number or a text"
        case _:
            assert_never(op)


def _holds(condition: DataCondition, data: Any) -> bool:
    found, value = _find(data, _steps_of(condition.path)), _value_of(condition.value)
    match condition.op:
        case Comparison.EQ:
            return _is_same(found, value)
        case Comparison.NE:
            return not _is_same(found, value)
        case Comparison.IN:
            return any(_is_same(found, each) for each in value)
        case Comparison.EXISTS:
            return (found is not _MISSING) is value
        case Comparison.LT:
            return _are_comparable(found, value) and bool(found < value)
        case Comparison.GT:
            return _are_comparable(found, value) and bool(found > value)
        case _:
            assert_never(condition.op)


def _find(data: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        if isinstance(data, dict):
            data = data.get(step, _MISSING)
        elif isinstance(data, list) and _PLACE.fullmatch(step) and int(step) < len(data):
            data = data[int(step)]
        else:
            return _MISSING
    return data


def _is_same(found: Any, value: Any) -> bool:
    """Whether both are the same JSON. The recursion is as deep as `value`, which has passed its checks."""
    if isinstance(value, dict):
        return (
            isinstance(found, dict)
            and found.keys() == value.keys()
            and all(_is_same(found[name], each) for name, each in value.items())
        )
    if isinstance(value, list):
        return isinstance(found, list) and len(found) == len(value) and all(map(_is_same, found, value))
    if _is_number(value):
        return _is_number(found) and bool(found == value)
    return type(found) is type(value) and bool(found == value)


def _are_comparable(found: Any, value: Any) -> bool:
    return (_is_number(found) and _is_number(value)) or (isinstance(found, str) and isinstance(value, str))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# An event comes to many subscriptions, one after the other, and a subscription's values stay the same. Callers must
# not change the cached results.
@lru_cache(maxsize=64)
def _decode(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _MISSING


@lru_cache(maxsize=1_000)  # a value of a thousand characters is some 25 kB of lists
def _value_of(value: str) -> Any:
    return msgspec.json.decode(value)


@lru_cache(maxsize=10_000)
def _steps_of(path: str) -> tuple[str, ...]:
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:])
