"""The moves of schedules, on a store."""

import pytest

from shared.clock.schedules import ScheduleFlow
from shared.store import Store
from shared.time import DatabaseTime


@pytest.fixture
def flow(store: Store) -> ScheduleFlow:
    return ScheduleFlow(store, DatabaseTime(store))
