"""A worker of the bus and its receiver, for one test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.store import Store
from tests.receivers import receiver
from tests.services.worker.bus.delivering import Delivering, delivering


@pytest.fixture
async def bus(store: Store, tmp_path: Path) -> AsyncIterator[Delivering]:
    async with receiver(tmp_path / "arrivals") as at, delivering(store, at) as made:
        yield made
