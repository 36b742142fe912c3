"""Ids that are the same each time."""

from itertools import count
from uuid import UUID

_FIRST = 0x0193_5A00_0000_7000_8000_0000_0000_0000
_numbers = count(1)


def next_id() -> str:
    """The next one."""
    return str(UUID(int=_FIRST + next(_numbers)))
