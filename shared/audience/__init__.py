"""Audiences are the rows of push tables in PostgreSQL. They belong to our users: we only ever read them.

Guarantees:

- **Cuts partition.** Between two keys, every row that the filters keep is in exactly one cut, and a cut's `size` is the
  number of its rows when it was made. Rows of equal `seq_id` are never parted, so a cut may exceed its size by them.
  Rows without a `seq_id`, or with the least of all bigints, belong to no audience.
- **A range can be read again** and gives the rows that are then in it, in order of `seq_id`; rows that share one come
  in any order.
- **No statement is long.** One scans at most `scan_rows` rows however few of them the filters keep, walks on from
  where the last one ended, and is ended by the server after the statement time-out.
- **Values and names are data.** Values are bound, never part of a statement; names are quoted, and a column's must be
  in the catalogue. A value is read as its column's type reads a literal (`07` equals the integer 7).
- A server that is down or slow is `Unavailable`, then and there; what works again afterwards is simply used. A table
  that is dropped or altered while a job runs is looked up again, and is `Invalid` if it no longer serves.

It needs PostgreSQL 13 or later. Behind PgBouncer, the settings in `connections.py` must be listed in
`ignore_startup_parameters`, and transaction pooling needs its `max_prepared_statements`.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Self

import structlog

from shared.audience import statements
from shared.audience.connections import Connections
from shared.audience.tables import DESCRIBE, KEY, Table, described
from shared.domain.audiences import Condition, Cut, conditions, joined
from shared.domain.batches import KeyRange
from shared.domain.errors import Invalid

SCAN_ROWS = 200_000  # 60 ms when the table lies in the order of its keys, 200 ms when it lies in none
SCANS = 5  # how many such steps one call may take to fill a page that it has begun

Row = tuple[int, str | None, str | None, str | None, str | None]
"""A device: seq_id, user_id, token, locale, tz. It unpacks and indexes as this tuple; it is the driver's own record,
because making a million tuples of them would cost more than a tenth of the reading."""

log = structlog.get_logger(__name__)


class Audience:
    """The push tables of one database. Every operation raises `Unavailable` when the server gives no answer."""

    def __init__(self, connections: Connections, *, scan_rows: int) -> None:
        self._connections = connections
        self._scan_rows = scan_rows
        self._tables: dict[str, Table] = {}

    @classmethod
    async def open(
        cls, url: str, *, pool_size: int, statement_timeout_seconds: float, scan_rows: int = SCAN_ROWS
    ) -> Self:
        """Ready to ask the server at `url`, which need not run yet."""
        connections = await Connections.open(
            url, pool_size=pool_size, statement_timeout_seconds=statement_timeout_seconds
        )
        return cls(connections, scan_rows=scan_rows)

    async def check(self, table: str, filters: Mapping[str, str]) -> None:
        """Find out now whatever would keep a job over this audience from running.

        Raises:
            Invalid: the table is missing or is no push table (`field` is `app`), or a filter breaks its rule, names no
                column or holds what its column cannot be compared with (`filters.<key>`).
        """
        wanted = conditions(filters)
        described_now = await self._describe(table)
        if not described_now.columns[KEY].indexed:
            log.warning("push table has no index on seq_id", table=table)
        for condition in wanted:
            await self._probe(described_now, condition)
        await self._connections.fetch(statements.read(described_now, wanted), 0, 0, *statements.arguments(wanted))

    async def highest(self, table: str) -> int:
        """The greatest seq_id of the table, 0 if it has no rows. Raises `Invalid` for a missing table."""
        rows = await self._ask(table, {}, lambda known, _: statements.highest(known.name))
        return rows[0][0] or 0

    async def cut(
        self, table: str, filters: Mapping[str, str], *, after: int, upto: int, size: int, batches: int
    ) -> list[Cut]:
        """The next cuts of about `size` rows behind `after` and not beyond `upto`; none are left when there are none.

        At most `batches` come at once. The last can be short though more follow, where the filters keep few rows.
        Begin with `after` = `BEGINNING`, then go on from the last cut's `upto`. Raises `Invalid`.
        """
        cuts: list[Cut] = []
        for scan in count():
            begun = bool(cuts) and cuts[0].size < size and scan < SCANS
            if after >= upto or (cuts and not begun):
                break
            bounds = (after, upto, size, size * batches, self._scan_rows)
            page = [Cut(*row) for row in await self._ask(table, filters, statements.cut, *bounds)]
            after = page[-1].upto if page else await self._edge(table, after, upto)
            cuts = joined(cuts, page, size)
        return cuts[:batches]

    async def read(self, table: str, filters: Mapping[str, str], keys: KeyRange) -> list[Row]:
        """The devices of a range that the filters keep, in the order of their seq_id. Raises `Invalid`."""
        return await self._ask(table, filters, statements.read, keys.after, keys.upto)

    async def ping(self) -> None:
        """Raise `Unavailable` when the server does not answer."""
        await self._connections.fetch(statements.PING)

    async def close(self) -> None:
        """End the connections."""
        await self._connections.close()

    async def _edge(self, table: str, after: int, upto: int) -> int:
        rows = await self._ask(table, {}, lambda known, _: statements.edge(known), after, upto, self._scan_rows)
        return rows[0][0] if rows else upto

    async def _ask(
        self,
        table: str,
        filters: Mapping[str, str],
        statement: Callable[[Table, Sequence[Condition]], str],
        *bounds: int,
    ) -> list[Any]:
        """Run a statement over a table as it was last seen, and if that no longer fits, as it is now."""
        wanted = conditions(filters)
        values = statements.arguments(wanted)
        if known := self._tables.get(table):
            try:
                return await self._connections.fetch(statement(known, wanted), *bounds, *values)
            except Invalid:
                self._tables.pop(table, None)
        known = await self._describe(table)
        return await self._connections.fetch(statement(known, wanted), *bounds, *values)

    async def _describe(self, table: str) -> Table:
        rows = await self._connections.fetch(DESCRIBE, statements.quoted(table))
        self._tables[table] = described(table, rows)
        return self._tables[table]

    async def _probe(self, table: Table, condition: Condition) -> None:
        column_type = table.type_of(condition)
        try:
            await self._connections.fetch(statements.probe(column_type), list(condition.values))
        except Invalid as error:
            reason = f'column "{condition.column}" ({column_type}) cannot be compared with this value'
            raise Invalid(reason, field=condition.field, value=",".join(condition.values)) from error
