"""The spellings of users in a file: two may mean one user of the push table.

The planner finds repeated users by the bytes of their ids, and PostgreSQL compares them as the type of `user_id`. Both
must agree, or a user with two spellings gets two records. So each type that a file may address has a normal form: equal
for the spellings of one value, different for different values. Types with an equality that cannot be reproduced for
certain, such as `citext`, are not in the table below.
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
