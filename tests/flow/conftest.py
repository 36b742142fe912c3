"""The flow of schedules on a store, and a database for many worlds of a model, one after the other."""

from collections.abc import Iterator

import pytest

from shared.clock.schedules import ScheduleFlow
from shared.store import Store
from shared.time import DatabaseTime
from tests.flow.simulated.database import Database
from tests.flow.simulated.worlds import SeedsFrom


@pytest.fixture
def flow(store: Store) -> ScheduleFlow:
    return ScheduleFlow(store, DatabaseTime(store))


@pytest.fixture
def database(mongo_database: str) -> Iterator[Database]:
    opened = Database(mongo_database)
    yield opened
    opened.end()


@pytest.fixture
def seeds(database: Database, seed: int, storm_seconds: float, capsys: pytest.CaptureFixture[str]) -> SeedsFrom:
    return SeedsFrom(database, seed, storm_seconds, capsys)
