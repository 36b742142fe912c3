"""Tables of recipients: any columns, and a key to walk along.

The guarantees are those of `shared.drivers.postgres`. Callers name columns as a file's header would
(`shared.audience.rules.columns`); statements use the catalogue's names, quoted.
"""

from collections.abc import Mapping, Sequence
from typing import Self

from shared.audience.rules.audiences import Condition, KeyRange, conditions
from shared.audience.rules.devices import Cut
from shared.drivers.postgres import Audience, statements
from shared.drivers.postgres.asking import Statement, TableRows, Tables, check, table_rows_of
from shared.drivers.postgres.connections import Connections
from shared.drivers.postgres.statements import KEY, Table

_ALL = 2**63 - 1


class RecipientTables:
    def __init__(self, connections: Connections, *, scan_rows: int) -> None:
        self._connections = connections
        self._tables = Tables(connections, needed=())
        self._rows = Audience(connections, scan_rows=scan_rows, tables=self._tables)

    @classmethod
    def beside(cls, audience: Audience) -> Self:
        return cls(audience.connections, scan_rows=audience.scan_rows)

    async def check(self, table: str, filters: Mapping[str, str], columns: Sequence[str]) -> None:
        """Find faults that would stop a job from reading these columns."""
        await check(self._connections, self._tables, table, conditions(filters), KEY, _read_statement(columns))

    async def columns(self, table: str) -> tuple[str, ...]:
        return (await self._tables.describe(table)).names()

    async def highest(self, table: str) -> int:
        return await self._rows.highest(table)

    async def cut(
        self, table: str, filters: Mapping[str, str], *, after: int, upto: int, size: int, batches: int
    ) -> list[Cut]:
        """See `Audience.cut`."""
        return await self._rows.cut(table, filters, after=after, upto=upto, size=size, batches=batches)

    async def read(
        self, table: str, filters: Mapping[str, str], keys: KeyRange, columns: Sequence[str], *, limit: int = _ALL
    ) -> TableRows:
        """The rows of a range that the filters keep: the first `limit`, and all that share the last one's seq_id.
        `Invalid` is raised as in `Audience.read`."""
        bounds = (keys.after, keys.upto, limit)
        rows = await self._tables.ask(table, conditions(filters), _read_statement(columns), *bounds)
        return table_rows_of(rows, columns)


def _read_statement(columns: Sequence[str]) -> Statement:
    def statement(table: Table, wanted: Sequence[Condition]) -> str:
        found = [table.find(column, "recipientColumn") for column in columns]
        return statements.read_columns(table, wanted, columns=found)

    return statement
