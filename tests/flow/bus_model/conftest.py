"""A database for many worlds, one after the other."""

from collections.abc import Iterator

import pytest

from tests.flow.simulated.database import Database


@pytest.fixture
def database(mongo_database: str) -> Iterator[Database]:
    opened = Database(mongo_database)
    yield opened
    opened.end()
