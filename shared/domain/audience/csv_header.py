"""The header of a CSV file with named columns, and the choice of columns.

Names are in lower case, without surrounding blanks and invisible characters, and unique. A job keeps the header, so
that any range of the file's records can be read alone.
"""

import re
from collections.abc import Collection, Sequence

from msgspec import Struct

from shared.domain.audience.column_names import column_name
from shared.domain.errors import CarillonError, Invalid, suggest

MAX_COLUMNS = 1_000
MAX_NAME_CHARACTERS = 255
_NOT_COMMAS = {b";": "semicolons", b"\t": "tabs"}
_LIKE_A_NAME = re.compile(r"[^\W\d][\w .-]{0,49}")


class Header(Struct, frozen=True):
    """The names of a file's columns in their order, and the number of bytes before its first row."""

    names: tuple[str, ...]
    size: int


class Chosen(Struct, frozen=True):
    """The columns to read, by their places from 0 on: that of the `ids`, which is unique except for repeats, and
    `others`; `name` is that of the ids."""

    ids: int = 0
    others: tuple[int, ...] = ()
    name: str = ""


FIRST = Chosen()
"""The first column of a file without names."""


class BadHeader(CarillonError):
    """The column at this place breaks a rule of the header; the reader of the file knows the line."""

    def __init__(self, what: str, place: int) -> None:
        super().__init__(what)
        self.what = what
        self.place = place


def read_names(fields: Sequence[bytes]) -> tuple[str, ...]:
    for separator, word in _NOT_COMMAS.items():
        if len(fields) == 1 and separator in fields[0].strip():
            raise BadHeader(f"{word} between its columns, where commas must be", 0)
    names: dict[str, int] = {}
    read: list[str] = []
    for place, field in enumerate(fields):
        name = column_name(field.decode())
        if place >= MAX_COLUMNS:
            raise BadHeader(f"more than {MAX_COLUMNS:,} columns", place)
        if len(name) > MAX_NAME_CHARACTERS:
            raise BadHeader(f"a name of a column with more than {MAX_NAME_CHARACTERS} characters", place)
        if name in names and name:  # a spreadsheet leaves empty columns behind
            raise BadHeader(f'two columns with the name "{name}", in column {names[name] + 1} and again', place)
        names[name] = place
        read.append(name)
    return tuple(read)


def choose(header: Header, ids: str, used: Collection[str]) -> Chosen:
    """The column of the recipients and the used ones of the file, in their order; names come from `column_name`."""
    if ids not in header.names:
        # A file without a header has personal data there, which must not be logged.
        shown = [name if _LIKE_A_NAME.fullmatch(name) else "" for name in header.names]
        there = ", ".join(f'"{name}"' if name else "…" for name in shown[:10]) + suggest(ids, filter(None, shown))
        raise Invalid(f'the file has no column "{ids}" for its recipients; its columns are {there}', field="csvPath")
    others = tuple(place for place, name in enumerate(header.names) if name in used)
    return Chosen(header.names.index(ids), others, name=ids)
