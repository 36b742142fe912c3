"""A Marathon database of the test's own."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.contrib.import_marathon.source.source import SCHEMA, Source


@pytest.fixture
async def source(push_database: str) -> AsyncIterator[Source]:
    connection = await asyncpg.connect(push_database)
    await connection.execute(SCHEMA)
    yield Source(connection)
    await connection.close()
