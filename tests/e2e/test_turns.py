"""A message of a batch's next turn that comes to a worker which still has the earlier one in hand."""

import asyncio
from typing import Any

import pytest

from services.wiring.workers import build_stages
from services.worker.push.send import Sender
from shared.core.errors import Unavailable
from shared.jobs.rules.batches import Batch
from shared.jobs.rules.jobs import SendBatch
from tests.e2e.house import House
from tests.waiting import SECONDS

pytestmark = [pytest.mark.e2e, pytest.mark.native]


async def test_the_next_turn_waits_for_the_earlier_one(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier one cannot take the batch any more. Were the next one let go, the batch would have no message."""
    await house.devices(10)
    store, audience = house.servers.store, house.servers.audience
    [sender] = [stage for stage in build_stages(house.rooms) if isinstance(stage, Sender)]
    [planner] = [stage for stage in build_stages(house.rooms) if stage.task.queue == "push.split"]
    key = await house.post()
    await planner.run(planner.task(key))
    read, reading, may_go_on = audience.read, asyncio.Event(), asyncio.Event()

    async def read_slowly(*given: Any, **named: Any) -> Any:
        reading.set()
        await may_go_on.wait()
        return await read(*given, **named)

    monkeypatch.setattr(audience, "read", read_slowly)
    first = await batch_of(house, key)
    earlier = asyncio.create_task(sender.run(SendBatch(key, 0, first.turn)))
    await asyncio.wait_for(reading.wait(), SECONDS)
    assert await house.feed.requeue(first)
    later = SendBatch(key, 0, first.turn + 1)
    with pytest.raises(Unavailable, match="an earlier turn of batch 0 is still in hand"):
        await sender.run(later)
    may_go_on.set()
    await earlier
    assert not (await batch_of(house, key)).settled
    await sender.run(later)
    assert (await batch_of(house, key)).settled
    assert await store.batch_sums.totals([key])


async def batch_of(house: House, key: str) -> Batch:
    batch = await house.servers.store.batches.get(key, 0)
    assert batch is not None
    return batch
