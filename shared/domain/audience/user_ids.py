"""How a file spells a user: when two spellings mean one user of the push table.

The planner finds repeated users by the bytes of their ids, and PostgreSQL looks users up as the type of `user_id`
compares them. Both must agree, or a user whom a file spells in two ways gets two records. So each type that a file may
address has a normal form: spellings that PostgreSQL takes for one value have one, and different values have different
ones. Types whose notion of equal we cannot repeat for certain, such as `citext`, are not in the table below.
"""

import re
from collections.abc import Callable, Iterable, Mapping

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
    """The hexadecimal digits alone, in lower case."""
    return spelled.translate(None, UUID_IGNORES).lower()


NORMAL_FORMS: Mapping[str, Normalize | None] = {
    "text": None,
    "character varying": None,
    "smallint": normalize_integer,
    "integer": normalize_integer,
    "bigint": normalize_integer,
    "uuid": normalize_uuid,
}
"""The normal form by the column's type, as PostgreSQL's catalogue names it; `None` where bytes are compared as they
stand."""


def readable_ids(column_type: str, spelled: Iterable[str]) -> list[str]:
    """Those of the ids that a column of this type can hold, as it reads them. All others are nobody's: in one statement
    with the good ones, a bad one would fail them all."""
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
