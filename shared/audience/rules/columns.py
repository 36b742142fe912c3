"""Columns: their names, the choice of columns in a file's header, and the spellings of a user's id.

Names are in lower case, without surrounding blanks and invisible characters, and unique. A job keeps the header, so
that any range of the file's records can be read alone.

The planner finds repeated users by the bytes of their ids, and PostgreSQL compares them as the type of `user_id`.
Both must agree, or a user with two spellings gets two records. So each type that a file may address has a normal
form: equal for the spellings of one value, different for different values. Types with an equality that cannot be
reproduced for certain, such as `citext`, are not in the table below.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from unicodedata import normalize

from msgspec import Struct

from shared.core.errors import CarillonError, Invalid, suggest

ZERO_WIDTH = (
    "\u00ad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
"""Invisible characters from spreadsheets, web pages and chats: of no width, or marks of direction."""
_FREE_OF_ZERO_WIDTH = str.maketrans("", "", ZERO_WIDTH)


def column_name(written: str) -> str:
    if written.isascii():
        return written.strip().lower()
    return normalize("NFC", written.translate(_FREE_OF_ZERO_WIDTH).strip().lower())


def without_zero_width(text: str) -> str:
    return text if text.isascii() else text.translate(_FREE_OF_ZERO_WIDTH).strip()


def strip_unseen(text: str) -> str:
    stripped = text.strip()
    if stripped.isascii():
        return stripped
    while (closer := stripped.strip(ZERO_WIDTH).strip()) != stripped:
        stripped = closer
    return stripped


Normalize = Callable[[bytes], bytes]
UUID_IGNORES = b"{}-"
_UUID = re.compile(rb"[0-9a-f]{32}")
_INTEGER_BITS = {"smallint": 16, "integer": 32, "bigint": 64}


def normalize_integer(spelled: bytes) -> bytes:
    """The digits without leading zeros, signs and blanks; PostgreSQL 16 also reads `0x1f` and `1_000`."""
    for base in (10, 0):
        try:
            return b"%d" % int(spelled, base)
        except ValueError:
            continue
    return spelled


def normalize_uuid(spelled: bytes) -> bytes:
    return spelled.translate(None, UUID_IGNORES).lower()


NORMAL_FORMS: Mapping[str, Normalize | None] = {
    "text": None,
    "character varying": None,
    "smallint": normalize_integer,
    "integer": normalize_integer,
    "bigint": normalize_integer,
    "uuid": normalize_uuid,
}
"""The normal form by the column's type in PostgreSQL's catalogue; `None` if bytes are compared unchanged."""


def readable_ids(column_type: str, spelled: Iterable[str]) -> list[str]:
    """The ids that a column of this type can hold, as it reads them. The others belong to no user, and one bad id would
    fail a whole statement."""
    normalize = NORMAL_FORMS.get(column_type)
    if normalize is None:
        return [user for user in spelled if "\0" not in user]
    forms = (normalize(user.encode()) for user in spelled)
    return [form.decode() for form in forms if _is_readable(column_type, form)]


def _is_readable(column_type: str, form: bytes) -> bool:
    bits = _INTEGER_BITS.get(column_type)
    if bits is None:
        return _UUID.fullmatch(form) is not None
    try:
        return int(form).bit_length() < bits or int(form) == -(1 << bits - 1)
    except ValueError:
        return False


MAX_COLUMNS = 1_000
MAX_NAME_CHARACTERS = 255
_NOT_COMMAS = {b";": "semicolons", b"\t": "tabs"}
_LIKE_A_NAME = re.compile(r"[^\W\d][\w .-]{0,49}")


class Header(Struct, frozen=True):
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


class NamedColumns(Struct, frozen=True):
    """The cuts of a file with named columns: the choice of the column of ids (called `ids` in a table; cuts need no
    others), the normal form of ids, and whether a repeated id is no recipient (`once`). There must be at most `most`
    recipients, unless it is 0."""

    choose: Callable[[Header], Chosen]
    normalize: Normalize | None = None
    once: bool = True
    most: int = 0
    ids: str = ""

    def check(self, recipients: int) -> None:
        check_count(recipients, self.most)


def check_count(recipients: int, most: int) -> None:
    if 0 < most < recipients:
        reason = f"the audience has more than the {most:,} recipients that maxRecipients allows"
        raise Invalid(reason, field="maxRecipients", value=most)
