"""Asking a push table. Its columns are remembered, and looked up again if a statement no longer fits."""

from collections.abc import Callable, Sequence
from typing import Any

from shared.audience import statements
from shared.audience.connections import Connections
from shared.audience.tables import DESCRIBE, DETAILS, Table, read_table
from shared.domain.audience.audiences import Condition
from shared.domain.errors import Invalid

Statement = Callable[[Table, Sequence[Condition]], str]


class Tables:
    """The tables of one database as last seen. All have the `needed` columns and a key."""

    def __init__(self, connections: Connections, *, needed: Sequence[str] = DETAILS) -> None:
        self._connections = connections
        self._needed = needed
        self._known: dict[str, Table] = {}

    async def ask(
        self,
        table: str,
        wanted: Sequence[Condition],
        statement: Statement,
        *bounds: int | Sequence[str] | Sequence[int],
    ) -> list[Any]:
        """Run a statement over the remembered table; if that no longer fits, look the table up and try again."""
        values = statements.arguments(wanted)
        if known := self._known.get(table):
            try:
                return await self._connections.fetch(statement(known, wanted), *bounds, *values)
            except Invalid:
                self._known.pop(table, None)
        known = await self.describe(table)
        return await self._connections.fetch(statement(known, wanted), *bounds, *values)

    async def get(self, table: str) -> Table:
        return self._known.get(table) or await self.describe(table)

    async def describe(self, table: str) -> Table:
        rows = await self._connections.fetch(DESCRIBE, statements.quote_name(table))
        self._known[table] = read_table(table, rows, self._needed)
        return self._known[table]
