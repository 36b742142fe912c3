"""A store in a database of the test's own."""

from collections.abc import AsyncIterator

import pytest

from shared.store import Store


@pytest.fixture
async def store(mongo_database: str) -> AsyncIterator[Store]:
    opened = Store.open(mongo_database)
    await opened.setup()
    yield opened
    await opened.close()
