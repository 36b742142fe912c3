"""The house of the end-to-end tests, to be set on fire, and a bus in it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.bus.waking import Waker
from tests.e2e.conftest import hasty, house, lingering
from tests.e2e.house import House
from tests.receivers import receiver
from tests.services.worker.bus.delivering import LEASE, Delivering

__all__ = ["hasty", "house", "lingering"]


@pytest.fixture
async def bus(house: House, tmp_path: Path) -> AsyncIterator[Delivering]:
    given = house.servers
    async with receiver(tmp_path / "arrivals") as at:
        waker = Waker(given.store, given.broker, given.time, handed_for=LEASE / 5)
        yield Delivering(given.store, given.time, waker, given.key_ring, at)
