"""Tables of recipients: whatever columns their owner gives them, and a key to walk along.

The guarantees are those of `shared.audience`. Columns are asked for by the names that a file's header would give them
(`shared.domain.audience.column_names`); into a statement they go as the catalogue has them, and quoted.
"""

from collections.abc import Mapping, Sequence
from typing import Self

from shared.audience import Audience, statements
from shared.audience.asking import Statement, Tables
from shared.audience.checking import check
from shared.audience.connections import Connections
from shared.audience.reading import TableRows, table_rows_of
from shared.audience.tables import KEY, Table
from shared.domain.audience.audiences import Condition, conditions
from shared.domain.audience.cuts import Cut
from shared.domain.audience.ranges import KeyRange

_ALL = 2**63 - 1


class RecipientTables:
    """The tables of recipients in one database. All that asks raises `Unavailable` when the server gives no answer."""

    def __init__(self, connections: Connections, *, scan_rows: int) -> None:
        self._connections = connections
        self._tables = Tables(connections, needed=())
        self._rows = Audience(connections, scan_rows=scan_rows, tables=self._tables)

    @classmethod
    def beside(cls, audience: Audience) -> Self:
        """The tables of the audience's own database, by its connections."""
        return cls(audience.connections, scan_rows=audience.scan_rows)

    async def check(self, table: str, filters: Mapping[str, str], columns: Sequence[str]) -> None:
        """Find out now whatever would keep a job from reading these columns. Raises `Invalid`, and says of which
        field."""
        await check(self._connections, self._tables, table, conditions(filters), KEY, _read_statement(columns))

    async def columns(self, table: str) -> tuple[str, ...]:
        """The names of the table's columns. Raises `Invalid` for a missing table."""
        return (await self._tables.describe(table)).names()

    async def highest(self, table: str) -> int:
        """The greatest seq_id, as `Audience.highest` gives it."""
        return await self._rows.highest(table)

    async def cut(
        self, table: str, filters: Mapping[str, str], *, zone: str = "", after: int, upto: int, size: int, batches: int
    ) -> list[Cut]:
        """The next cuts, as `Audience.cut` gives them. These tables know no zones."""
        return await self._rows.cut(table, filters, after=after, upto=upto, size=size, batches=batches)

    async def read(
        self, table: str, filters: Mapping[str, str], keys: KeyRange, columns: Sequence[str], *, limit: int = _ALL
    ) -> TableRows:
        """The rows of a range that the filters keep: the first `limit` of them, and all that share the last one's
        seq_id. Raises `Invalid`."""
        bounds = (keys.after, keys.upto, limit)
        rows = await self._tables.ask(table, conditions(filters), _read_statement(columns), *bounds)
        return table_rows_of(rows, columns)


def _read_statement(columns: Sequence[str]) -> Statement:
    def statement(table: Table, wanted: Sequence[Condition]) -> str:
        found = [table.find(column, "recipientColumn") for column in columns]
        return statements.read_columns(table, wanted, columns=found)

    return statement
