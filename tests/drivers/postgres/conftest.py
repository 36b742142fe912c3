"""A push table on a real PostgreSQL, an `Audience` over it, and a connection of the test's own to change it."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from shared.drivers.postgres import Audience

# Small, so that a table of a few dozen rows takes several scans.
SCAN_ROWS = 8
TIMEOUT_SECONDS = 30.0


@pytest.fixture
async def owner(push_database: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Whoever owns the push tables: it made `game_apns`, which is empty."""
    connection = await asyncpg.connect(push_database)
    await connection.execute("""
        CREATE TYPE mood AS ENUM ('Good', 'bad');
        CREATE TABLE game_apns (
            user_id text, token text, locale text, region text, tz text, seq_id bigint,
            level integer, code character(4), state mood, born date, extra json, "od""d $1 %s; --" text
        );
        CREATE INDEX ON game_apns (seq_id)""")
    yield connection
    await connection.close()


@pytest.fixture
async def audience(push_database: str, owner: "asyncpg.Connection[asyncpg.Record]") -> AsyncIterator[Audience]:
    opened = Audience.open(push_database, pool_size=2, statement_timeout_seconds=TIMEOUT_SECONDS, scan_rows=SCAN_ROWS)
    yield opened
    await opened.close()
