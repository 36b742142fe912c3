"""Made-up devices in a push table, for the demo, for trying things out and for tests.

The one place that writes to a push database. It makes tables that are not there and adds to those that it made; a table
with other people's devices in it is left alone.
"""

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg

from shared.audience.connections import CONNECT_SECONDS, translate_errors
from shared.audience.statements import quote_name
from shared.domain.errors import Conflict

LOCALES = ("en", "pt", "en")
REGIONS = ("US", "BR", "GB")
ZONES = ("-0500", "-0300", "+0000")
COLUMNS = ("seq_id", "user_id", "token", "locale", "region", "tz")
USER_PREFIX = "made-up-"
AT_ONCE = 50_000


def token(number: int) -> str:
    """The token of the device with this seq_id: 64 hex digits, like those of APNs."""
    return hashlib.blake2b(number.to_bytes(8, "big"), digest_size=32).hexdigest()


def locale(number: int) -> str:
    """The locale of the device with this seq_id."""
    return LOCALES[number % len(LOCALES)]


async def top_up(url: str, table: str, count: int) -> int:
    """Make the table if it is missing and fill it up to `count` devices, seq_id 1 and on; how many it then has.

    Raises:
        Conflict: the table holds devices that were not made here.
        Unavailable: the server cannot be reached.
        Invalid: the table is no push table.
    """
    async with _connection(url) as connection, connection.transaction():
        await connection.execute(_table(table))
        await connection.execute(f"LOCK TABLE {quote_name(table)} IN EXCLUSIVE MODE")
        present = await _present(connection, table)
        for first in range(present + 1, count + 1, AT_ONCE):
            rows = _devices(first, min(first + AT_ONCE - 1, count))
            await connection.copy_records_to_table(table, records=rows, columns=COLUMNS)
        if present < count:
            await connection.execute(f"ANALYZE {quote_name(table)}")
        return max(present, count)


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    with translate_errors():
        connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS)
        try:
            yield connection
        finally:
            await connection.close(timeout=CONNECT_SECONDS)


def _table(name: str) -> str:
    index = quote_name(f"{name}_user_id")
    return (
        f"CREATE TABLE IF NOT EXISTS {quote_name(name)} (seq_id bigint PRIMARY KEY, user_id text NOT NULL,"
        " token text NOT NULL, locale text, region text, tz text);"
        f"CREATE INDEX IF NOT EXISTS {index} ON {quote_name(name)} (user_id)"
    )


async def _present(connection: "asyncpg.Connection[asyncpg.Record]", table: str) -> int:
    """How many devices the table holds, which are all ours."""
    query = (
        "SELECT count(*) AS count, coalesce(max(seq_id), 0) AS highest, "  # noqa: S608 - the name is quoted
        f"count(*) FILTER (WHERE NOT starts_with(user_id, $1)) AS foreign_ones FROM {quote_name(table)}"
    )
    found = await connection.fetchrow(query, USER_PREFIX)
    assert found is not None
    if found["foreign_ones"] or found["count"] != found["highest"]:
        raise Conflict(f'table "{table}" holds devices that were not made up here; choose another app', field="app")
    return int(found["count"])


def _devices(first: int, last: int) -> Iterator[tuple[int, str, str, str, str, str]]:
    for number in range(first, last + 1):
        place = number % len(LOCALES)
        yield number, f"{USER_PREFIX}{number}", token(number), locale(number), REGIONS[place], ZONES[place]
