"""Asking a push table: its columns, the checks before a job is made, and the server's answers.

The columns are remembered, and looked up again if a statement no longer fits. An answer with rows is a single row
that holds all of a column in one value.

A count within a time limit is made of bounded statements, each from where the last one ended. The first ones are
small, so that a slow table also gives a result in time; they grow to the usual size. The server hashes the users,
so that no user id leaves it.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import structlog
from msgspec import Struct

from shared.audience.rules.audiences import BEGINNING, Condition, Counted, frequent, frequent_zones
from shared.audience.rules.devices import NO_KEYS, NOBODY, Devices, Keys
from shared.audience.rules.repeats import Distinct
from shared.core.errors import Invalid
from shared.drivers.postgres import statements
from shared.drivers.postgres.connections import Connections
from shared.drivers.postgres.statements import DESCRIBE, DETAILS, KEY, USER, ZONE, Table, read_table, text_name

log = structlog.get_logger(__name__)
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


async def check(
    connections: Connections,
    tables: Tables,
    table: str,
    wanted: Sequence[Condition],
    walks: str,
    statement: Statement = statements.read,
) -> None:
    """Raise `Invalid` if the table is missing, lacks what `tables` need, or has no users that a file can name (field
    `app`), or if a filter has no column or an incomparable value (`filters.<key>`). The statement that will read the
    table is tried."""
    known = await tables.describe(table)
    if walks == USER:
        known.user_type()
    if not known.columns[walks].indexed:
        log.warning("push table lacks an index", table=table, column=walks)
    for condition in wanted:
        await _probe(connections, known, condition)
    await connections.fetch(statement(known, wanted), 0, 0, 1, *statements.arguments(wanted))


async def _probe(connections: Connections, table: Table, condition: Condition) -> None:
    column_type = "text" if condition.folded else table.type_of(condition)
    try:
        await connections.fetch(statements.probe(column_type), list(condition.values))
    except Invalid as error:
        reason = f'column "{condition.column}" ({column_type}) cannot be compared with this value'
        raise Invalid(reason, field=condition.field, value=",".join(condition.values)) from error


class TableRows(Struct, frozen=True, eq=False):
    """Rows of a table of recipients in the order of their `keys`: a list of UTF-8 texts per requested column. NULL
    is empty. Rows that share a key come in the order of their texts, so always in the same order."""

    keys: Keys
    columns: tuple[list[bytes], ...]


def devices_of(rows: Sequence[Any]) -> Devices:
    """The devices in the answer to a statement of `statements`. Only a damaged table has texts that are not UTF-8: the
    server does not check texts that it already stores as UTF-8."""
    [row] = rows
    if row[KEY] is None:
        return NOBODY
    keys = np.frombuffer(row[KEY], ">i8").astype(np.int64)
    zones = _split(row[ZONE], ZONE) if ZONE in row else ()
    return Devices(keys, _split(row[USER], USER), _split(row["token"], "token"), _split(row["locale"], "locale"), zones)


def table_rows_of(rows: Sequence[Any], columns: Sequence[str]) -> TableRows:
    """The rows in the answer to `statements.read_columns`."""
    [row] = rows
    if row[KEY] is None:
        return TableRows(NO_KEYS, tuple([] for _ in columns))
    keys = np.frombuffer(row[KEY], ">i8").astype(np.int64)
    texts = tuple(_split(row[text_name(place)], column) for place, column in enumerate(columns))
    return _order(keys, texts) if (keys[1:] <= keys[:-1]).any() else TableRows(keys, texts)


def _order(keys: Keys, texts: tuple[list[bytes], ...]) -> TableRows:
    listed = keys.tolist()
    order = sorted(range(len(listed)), key=lambda row: (listed[row], [column[row] for column in texts]))
    return TableRows(keys[order], tuple([column[row] for row in order] for column in texts))


def _split(texts: bytes, column: str) -> list[bytes]:
    try:
        if not texts.isascii():
            texts.decode()
    except UnicodeDecodeError:
        raise Invalid(f'column "{column}" holds texts that are not UTF-8', field=column) from None
    return texts.split(b"\0")


class Divided(Struct, frozen=True):
    """Ascending keys by the first 64 characters of `tz`, up to the key `edge`. `last`: no rows follow."""

    keys: list[tuple[str | None, Keys]]
    edge: int
    last: bool


class DividedUsers(Struct, frozen=True):
    keys: list[tuple[str | None, Keys]]
    users: int


def keys_of(content: bytes) -> Keys:
    """Keys as the server sends them (big-endian, 8 bytes each), sorted."""
    return np.sort(np.frombuffer(content, ">i8").astype(np.int64), kind="stable")


def divided_users(rows: Sequence[Any]) -> DividedUsers:
    found: defaultdict[str | None, list[int]] = defaultdict(list)
    for key, _, text in rows:
        found[text].append(key)
    keys: list[tuple[str | None, Keys]] = [
        (text, np.sort(np.array(values, np.int64))) for text, values in found.items()
    ]
    return DividedUsers(keys, len({row[1] for row in rows}))


FIRST_SCAN = 1 / 16
GROWTH = 4
Ask = Callable[[int, int, int], Awaitable[Sequence[Any]]]
"""The rows of `statements.tally` after one key, up to another, for a number of rows of the table."""


class Tally:
    def __init__(self) -> None:
        self.upto = BEGINNING
        self.scanned = 0
        self._first = 0
        self._devices = 0
        self._without_token = 0
        self._longest_token = 0
        self._longest_user = 0
        self._zones: Counter[str | None] = Counter()
        self._locales: Counter[str | None] = Counter()
        self._users = Distinct()

    def add(self, page: Sequence[Any]) -> None:
        if not page:
            return
        self._first = self._first if self.scanned else min(group["first"] for group in page)
        self.upto = max(group["upto"] for group in page)
        self.scanned += sum(group["devices"] for group in page)
        kept = [group for group in page if group["kept"]]
        for group in kept:
            self._devices += group["devices"]
            self._without_token += group["devices"] - group["reachable"]
            self._zones[group["zone"]] += group["devices"]
            self._locales[group["locale"]] += group["devices"]
            self._longest_token = max(self._longest_token, group["longest_token"] or 0)
            self._longest_user = max(self._longest_user, group["longest_user"] or 0)
        self._users.add(b"".join(group["users"] or b"" for group in kept))
        self._zones, self._locales = frequent_zones(self._zones), frequent(self._locales)

    def result(self, *, highest: int, rows: int, exact: bool, indexed: bool) -> Counted:
        """The sums. `highest` is the greatest key, `rows` the catalogue's estimate of the table's rows, if it has
        one."""
        return Counted(
            devices=self._devices,
            users=self._users.count,
            without_token=self._without_token,
            zones=dict(self._zones),
            locales=dict(self._locales),
            scanned=self.scanned,
            total=self.scanned if exact else rows if rows > 0 else self._by_keys(highest),
            exact=exact,
            indexed=indexed,
            longest_token=self._longest_token,
            longest_user=self._longest_user,
        )

    def _by_keys(self, highest: int) -> int:
        """The rows of the table, if its keys are as dense everywhere as in the scanned part."""
        if not self.scanned:
            return 0
        return round(self.scanned * (highest - self._first + 1) / (self.upto - self._first + 1))


async def scan(ask: Ask, tally: Tally, *, upto: int, scan_rows: int, deadline: float) -> None:
    """Go on counting up to the key `upto`. At the `deadline` (the loop's clock) the tally holds the counts so far."""
    size = max(1, round(scan_rows * FIRST_SCAN))
    while tally.upto < upto:
        async with asyncio.timeout_at(deadline):
            page = await ask(tally.upto, upto, size)
        before = tally.scanned
        await asyncio.to_thread(tally.add, page)  # sorting a million hashes takes a tenth of a second
        if tally.scanned - before < size:
            return
        size = min(size * GROWTH, scan_rows)
