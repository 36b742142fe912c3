"""A group that cannot be fired: an outage waits for the leases; for a fault of ours each is fired on its own."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from services.scheduler.clock import TickingClock
from shared.clock.rules.occurrences import Occurrence, once
from shared.core.errors import Unavailable
from shared.runtime.settings import SchedulerSettings
from shared.store import Store
from shared.time import DatabaseTime

pytestmark = pytest.mark.native

PAST = datetime(2020, 1, 1, tzinfo=UTC)


class Failing:
    """Fails for each group."""

    def __init__(self, error: Exception) -> None:
        self.sizes: list[int] = []
        self.was_asked = asyncio.Event()
        self._error = error

    async def fire(self, due: list[Occurrence], *, trusted_until: float) -> bool:
        self.sizes.append(len(due))
        self.was_asked.set()
        raise self._error


@pytest.mark.parametrize(
    ("error", "sizes"), [(Unavailable("MongoDB: 11602"), [3]), (ValueError("a fault of ours"), [3, 1, 1, 1])]
)
async def test_only_for_a_fault_of_ours_each_is_fired_on_its_own(
    store: Store, error: Exception, sizes: list[int]
) -> None:
    time = DatabaseTime(store)
    await time.measure()
    dues = [PAST + timedelta(seconds=n) for n in range(3)]
    await store.occurrences.add([once("schedule/ns/a", "g", due, accepted_at=PAST) for due in dues])
    failing = Failing(error)
    clock = TickingClock(store, time, failing, SchedulerSettings())
    assert await clock.tick() == 3
    await clock.start()
    await asyncio.wait_for(failing.was_asked.wait(), 50)
    await clock.stop()
    assert failing.sizes == sizes
