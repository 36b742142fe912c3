"""Audiences are rows of push tables in PostgreSQL. The tables belong to users: Carillon only reads them.

Guarantees:

- **Cuts partition.** Between two keys, every row that the filters keep is in exactly one cut, and a cut's `size` is the
  number of its rows when it was made. Rows of equal `seq_id` are never separated, so a cut may exceed its size by them.
  Rows without a `seq_id`, or with the smallest bigint, belong to no audience.
- **A range can be read again.** It then gives its present rows in order of `seq_id`; rows that share one come in any
  order.
- **No statement is long.** One scans at most `scan_rows` rows, however few the filters keep; the next one goes on from
  there. The server ends a statement after the statement time-out.
- **Values and names are data.** Values are bound, never part of a statement; names are quoted, and a column's must be
  in the catalogue. A value is read as its column's type reads a literal (`07` equals the integer 7).
- A server that is down or slow is `Unavailable` at once, and is used again as soon as it works. A table that is dropped
  or altered while a job runs is looked up again, and is `Invalid` if it no longer serves.

PostgreSQL 13 or later is needed. Behind PgBouncer, the settings in `connections.py` must be listed in
`ignore_startup_parameters`, and transaction pooling needs its `max_prepared_statements`.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Self

from msgspec.structs import replace

from shared.audience.rules.audiences import Counted, KeyRange, conditions
from shared.audience.rules.columns import readable_ids
from shared.audience.rules.devices import NOBODY, Cut, Devices, cut_keys, merge_cuts
from shared.core.errors import Invalid
from shared.drivers.postgres import asking, statements
from shared.drivers.postgres.asking import Divided, DividedUsers, Tables, check, devices_of, divided_users, keys_of
from shared.drivers.postgres.connections import Connections
from shared.drivers.postgres.statements import KEY, USER

__all__ = ["DEVICES_AT_ONCE", "KEY", "USER", "Audience", "Divided", "DividedUsers"]

SCAN_ROWS = 200_000  # 60 ms if the table lies in the order of its keys, 200 ms if it lies in none
DEVICES_AT_ONCE = 50_000  # of one user; more cannot belong to a person
_ALL = 2**63 - 1
SCANS = 5  # the scans that one call may take to fill a page that it has begun


class Audience:
    def __init__(self, connections: Connections, *, scan_rows: int, tables: Tables | None = None) -> None:
        self.connections = connections
        self.scan_rows = scan_rows
        self._tables = tables or Tables(connections)

    @classmethod
    def open(cls, url: str, *, scan_rows: int = SCAN_ROWS, **options: Any) -> Self:
        """Prepare for the server at `url`, which need not run yet. The options are those of `Connections.open`."""
        return cls(Connections.open(url, **options), scan_rows=scan_rows)

    async def check(self, table: str, filters: Mapping[str, str], *, walks: str = KEY) -> None:
        """Find faults that would stop a job over this audience. `walks` is the column in whose order the job reads the
        table."""
        await check(self.connections, self._tables, table, conditions(filters), walks)

    async def user_type(self, table: str) -> str:
        """The type of `user_id`, which decides which ids of a file are one user (`shared.audience.rules.columns`)."""
        return (await self._tables.describe(table)).user_type()

    async def highest(self, table: str) -> int:
        rows = await self._tables.ask(table, (), lambda known, _: statements.highest(known.name))
        return rows[0][0] or 0

    async def cut(
        self, table: str, filters: Mapping[str, str], *, after: int, upto: int, size: int, batches: int
    ) -> list[Cut]:
        """The next cuts of about `size` rows after `after` and up to `upto`; an empty list means that none are left.

        A call returns at most `batches`. The last cut can be short although more follow, if the filters keep few rows.
        Begin with `after` = `BEGINNING`, then go on from the last cut's `upto`.
        """
        wanted = conditions(filters)
        cuts: list[Cut] = []
        for scan in count():
            begun = bool(cuts) and cuts[0].size < size and scan < SCANS
            if after >= upto or (cuts and not begun):
                break
            bounds = (after, upto, size * batches, self.scan_rows)
            [(keys, edge)] = await self._tables.ask(table, wanted, statements.cut, *bounds)
            found = cut_keys(keys_of(keys or b""), size)
            after = found[-1].upto if found else edge
            cuts = merge_cuts(cuts, found, size)
        return cuts[:batches]

    async def read(self, table: str, filters: Mapping[str, str], keys: KeyRange, *, limit: int = _ALL) -> Devices:
        """The devices of a range in the order of their seq_id: the first `limit`, and all that share the last one's."""
        wanted = conditions(filters)
        return devices_of(await self._tables.ask(table, wanted, statements.read, keys.after, keys.upto, limit))

    async def read_keys(
        self, table: str, filters: Mapping[str, str], keys: Sequence[int], *, limit: int = _ALL
    ) -> Devices:
        """The devices with these ascending keys that the filters keep, in the form of `read`."""
        if not keys:
            return NOBODY
        bounds = (keys[0] - 1, keys[-1], limit)
        return devices_of(await self._tables.ask(table, conditions(filters), statements.read_keys, *bounds, keys))

    async def divide(self, table: str, filters: Mapping[str, str], *, after: int, upto: int, rows: int) -> Divided:
        """The keys of the devices that the filters keep, by their `tz`, among the next `rows` rows after `after` and up
        to `upto`."""
        groups = await self._tables.ask(table, conditions(filters), statements.divide, after, upto, rows)
        scanned = sum(group["rows"] for group in groups)
        keys = [(group["text"], keys_of(group["keys"])) for group in groups if group["keys"]]
        edge = max((group["upto"] for group in groups), default=upto)
        return Divided(keys, edge if scanned >= rows else upto, last=scanned < rows)

    async def divide_users(self, table: str, users: Sequence[str], *, limit: int) -> DividedUsers | None:
        """The keys of these users' devices, in the form of `divide`, and the number of users with devices; `None` if
        there are more than `limit` devices. An id that the column cannot hold has none. Keys that two devices share are
        refused."""
        ids = await self._readable(table, users)
        rows = await self._tables.ask(table, (), lambda known, _: statements.divide_users(known), ids, limit + 1)
        if len(rows) > limit:
            return None
        await self._check_unshared(table, [row[0] for row in rows])
        return divided_users(rows)

    async def read_users(self, table: str, users: Sequence[str], *, limit: int) -> Devices | None:
        """The devices of these users, with their zones, in the order of their seq_id; `None` if there are
        more than `limit`. An id that the column cannot hold has none."""
        ids = await self._readable(table, users)
        rows = await self._tables.ask(table, (), lambda known, _: statements.of_users(known), ids, limit + 1)
        devices = devices_of(rows)
        return None if len(devices) > limit else devices

    async def count(self, table: str, filters: Mapping[str, str], *, seconds: float) -> Counted:
        """Count the rows that the filters keep, as far as `seconds` allow. It begins with the smallest keys; rows that
        come and go meanwhile may be counted or not."""
        deadline = asyncio.get_running_loop().time() + seconds
        indexed = (await self._tables.describe(table)).columns[KEY].indexed
        catalogue = await self.connections.fetch(statements.ROWS, statements.quote_name(table))
        ask = partial(self._tables.ask, table, conditions(filters), statements.tally)
        tally, highest, exact = asking.Tally(), 0, False
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                highest = await self.highest(table)
            await asking.scan(ask, tally, upto=highest, scan_rows=self.scan_rows, deadline=deadline)
            exact = True
        rows = catalogue[0]["rows"] if catalogue else 0
        return tally.result(highest=highest, rows=rows, exact=exact, indexed=indexed)

    async def count_users(self, table: str, users: Sequence[str]) -> Counted:
        """Count these users' devices. `unknown` counts users without any, empty ids, and ids that the column cannot
        hold; of two spellings of one user, one is known."""
        indexed = (await self._tables.get(table)).columns[USER].indexed
        named = await self._readable(table, filter(None, users))
        tally = asking.Tally()
        if named:
            tally.add(await self._tables.ask(table, (), lambda known, _: statements.tally_of_users(known), named))
        found = tally.result(highest=0, rows=0, exact=True, indexed=indexed)
        return replace(found, unknown=len(users) - found.users)

    async def ping(self) -> None:
        await self.connections.fetch(statements.PING)

    async def close(self) -> None:
        await self.connections.close()

    async def _readable(self, table: str, users: Iterable[str]) -> list[str]:
        return readable_ids((await self._tables.get(table)).columns[USER].type, users)

    async def _check_unshared(self, table: str, keys: Sequence[int]) -> None:
        column = (await self._tables.get(table)).columns[KEY]
        if column.unique:
            return
        shared = await self._tables.ask(table, (), lambda known, _: statements.shared_key(known), keys)
        if shared:
            rule = "a localized job over a file needs one for each device"
            raise Invalid(f'several rows of table "{table}" have the {KEY} {shared[0][0]}: {rule}', field="csvPath")
