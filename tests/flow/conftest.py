"""The flow of schedules on a store."""

import pytest

from shared.flow.clock.schedules import ScheduleFlow
from shared.flow.time import DatabaseTime
from shared.store import Store


@pytest.fixture
def flow(store: Store) -> ScheduleFlow:
    return ScheduleFlow(store, DatabaseTime(store))
