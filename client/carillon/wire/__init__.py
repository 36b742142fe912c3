"""The values that cross HTTP, each declared once: the API and the clients read and write them.

They import msgspec only. A client ignores fields of an answer that it does not know; the API refuses unknown fields of
a request, and checks limits and choices by a table beside its route. A request has no field that the server sets.
"""

from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

At = TypeVar("At")
"""An instant: its text where the API reads and writes it, a datetime in a client."""
Payload = TypeVar("Payload")
"""Any JSON: as it came where the API reads and writes it, Python's values in a client."""
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


class ItemError(Struct, frozen=True):
    """The error of one item of many."""

    reason: str
    field: str | None = None


class Result(Struct, frozen=True, kw_only=True):
    """The result of one of many items."""

    index: int
