"""A store in a database of the test's own, and the flow on it."""

from collections.abc import AsyncIterator

import pytest

from shared.flow.clock.schedules import ScheduleFlow
from shared.flow.time import DatabaseTime
from shared.store import Store


@pytest.fixture
async def store(mongo_database: str) -> AsyncIterator[Store]:
    opened = Store.open(mongo_database)
    await opened.setup()
    yield opened
    await opened.close()


@pytest.fixture
def flow(store: Store) -> ScheduleFlow:
    return ScheduleFlow(store, DatabaseTime(store))
