"""A database for many worlds of a model, one after the other."""

from collections.abc import Iterator

import pytest

from tests.models.simulated.database import Database
from tests.models.simulated.worlds import SeedsFrom


@pytest.fixture
def database(mongo_database: str) -> Iterator[Database]:
    opened = Database(mongo_database)
    yield opened
    opened.end()


@pytest.fixture
def seeds(database: Database, seed: int, storm_seconds: float, capsys: pytest.CaptureFixture[str]) -> SeedsFrom:
    return SeedsFrom(database, seed, storm_seconds, capsys)
