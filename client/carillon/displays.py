"""Answers of many fields, shown in two lines."""

from typing import Any

from msgspec import Struct

from carillon.instants import from_nanoseconds

_FIRST = ("id", "key", "name", "app_id", "zone", "state", "status", "failure")
_MOST = 10
_LONGEST = 40


class Short(Struct, frozen=True):
    """An answer whose `repr` has its main fields that have a value; `msgspec.structs.asdict` gives all fields."""

    def __repr__(self) -> str:
        fields = sorted(self.__struct_fields__, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
        values = {name: getattr(self, name) for name in fields}
        shown = [_show(name, value) for name, value in values.items() if value and _is_plain(value)]
        more = ["…"] if len(shown) > _MOST or any(not _is_plain(value) for value in values.values() if value) else []
        return f"{type(self).__name__}({', '.join(shown[:_MOST] + more)})"


def _is_plain(value: Any) -> bool:
    return not isinstance(value, Struct | dict | tuple | list | set | frozenset)


def _show(name: str, value: Any) -> str:
    if name.endswith("_ns"):
        name, value = name.removesuffix("_ns"), str(from_nanoseconds(value))
    text = repr(value)
    return f"{name}={text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}"
