"""How a file spells a user: when two spellings mean one user of the push table.

The planner finds repeated users by the bytes of their ids, and PostgreSQL looks users up as the type of `user_id`
compares them. Both must agree, or a user whom a file spells in two ways gets two records. So each type that a file may
address has a normal form: spellings that PostgreSQL takes for one value have one, and different values have different
ones. Types whose notion of equal we cannot repeat for certain, such as `citext`, are not in the table below.
"""

from collections.abc import Callable, Mapping

Normalize = Callable[[bytes], bytes]

UUID_IGNORES = b"{}-"


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
