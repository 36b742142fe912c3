"""Whom the jobs of the model write to: a table of recipients for each, in memory."""

from collections.abc import Mapping, Sequence

import numpy as np

from shared.audience.rules.audiences import KeyRange
from shared.audience.rules.devices import Cut
from shared.drivers.postgres.asking import TableRows

APP = "shop"
COLUMN = "recipient"
_ALL = 2**63 - 1


class People:
    """The tables, by their names; a recipient is named by the table and its key."""

    def __init__(self, keys: Mapping[str, Sequence[int]]) -> None:
        self._keys = {table: sorted(listed) for table, listed in keys.items()}

    def address(self, table: str, key: int) -> str:
        """The recipient with this key."""
        return f"{table}-{key}"

    def count(self, table: str) -> int:
        """How many there are."""
        return len(self._keys[table])

    async def columns(self, table: str) -> tuple[str, ...]:
        return (COLUMN,)

    async def highest(self, table: str) -> int:
        return max(self._keys[table])

    async def cut(
        self, table: str, filters: Mapping[str, str], *, after: int, upto: int, size: int, batches: int
    ) -> list[Cut]:
        rows = self._between(table, after, upto)
        pages = [rows[start : start + size] for start in range(0, len(rows), size)]
        return [Cut(page[-1], len(page)) for page in pages[:batches]]

    async def read(
        self, table: str, filters: Mapping[str, str], keys: KeyRange, columns: Sequence[str], *, limit: int = _ALL
    ) -> TableRows:
        found = self._between(table, keys.after, keys.upto)[:limit]
        texts = [self.address(table, key).encode() for key in found]
        return TableRows(np.array(found, np.int64), tuple(texts for _ in columns))

    def _between(self, table: str, after: int, upto: int) -> list[int]:
        return [key for key in self._keys[table] if after < key <= upto]
