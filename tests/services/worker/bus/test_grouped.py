"""Two runs of one queue in one process, as there are when a lease has ended: each is answered for itself."""

import asyncio

import pytest

from services.worker.bus.grouped import GroupedStore
from tests.bus.store.test_locked_cursors import QUEUES, make_cuts
from tests.services.worker.bus.delivering import LEASE, Delivering

pytestmark = pytest.mark.native


async def test_of_two_cuts_of_one_queue_one_is_written(bus: Delivering) -> None:
    grouped = GroupedStore(bus.store, bus.time, bus.waker, lease=LEASE)
    cuts = await make_cuts(bus.store, QUEUES[:2])
    assert await asyncio.gather(*map(grouped.cut, [*cuts, cuts[0]])) == [True, True, False]
    await grouped.close()
