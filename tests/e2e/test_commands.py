"""What a batch costs: the commands to MongoDB on its way from its message to its successor's."""

from typing import Any

import pytest

from services.wiring.workers import build_stages
from services.worker.push.send import Sender
from shared.jobs.rules.batches import SLOTS, BatchStatus
from shared.jobs.rules.jobs import SendBatch
from shared.jobs.store_batches import Batches
from tests.commands import Commands, count_commands
from tests.e2e.house import House

pytestmark = [pytest.mark.e2e, pytest.mark.native]

COMMANDS = {
    "find batches": 1,  # what the message names
    "find jobs": 1,  # the gate
    "findAndModify batches": 3,  # take, settle, queue the successor
}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    return count_commands(monkeypatch)


async def planned(house: House) -> str:
    """A job of one batch more than it has chains, its first batch queued."""
    await house.devices((SLOTS + 1) * 1_000)
    [planner] = [stage for stage in build_stages(house.rooms) if stage.task.queue == "push.split"]
    key = await house.post()
    await planner.run(planner.task(key))
    return key


async def test_a_batch_costs_five_commands(commands: Commands, house: House) -> None:
    key = await planned(house)
    batches = house.servers.store.batches
    [sender] = [stage for stage in build_stages(house.rooms) if isinstance(stage, Sender)]
    await sender.run(SendBatch(key, 1, 1))  # the job's own document is read once, whatever it has of batches
    commands.by_collection.clear()

    await sender.run(SendBatch(key, 0, 1))

    assert commands.by_collection == COMMANDS
    successor = await batches.get(key, SLOTS)
    assert successor is not None
    assert successor.status is BatchStatus.QUEUED


async def test_the_last_batch_of_a_chain_looks_for_no_successor(commands: Commands, house: House) -> None:
    """A job of up to 32 batches has no others."""
    key = await planned(house)
    [sender] = [stage for stage in build_stages(house.rooms) if isinstance(stage, Sender)]
    await sender.run(SendBatch(key, 1, 1))
    commands.by_collection.clear()

    await sender.run(SendBatch(key, 2, 1))

    assert commands.by_collection == {
        "find batches": 2,  # what the message names, and whether any is left
        "find jobs": 2,  # the gate, and whether the job may be closed
        "findAndModify batches": 2,  # take and settle
    }


async def test_the_successor_of_a_batch_of_a_job_that_is_paused_meanwhile_waits_at_its_own_gate(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await planned(house)
    store = house.servers.store
    [sender] = [stage for stage in build_stages(house.rooms) if isinstance(stage, Sender)]
    settle = Batches.settle

    async def settle_and_pause(*given: Any, **named: Any) -> Any:
        assert await house.jobs.pause(key)
        return await settle(*given, **named)

    monkeypatch.setattr(Batches, "settle", settle_and_pause)
    await sender.run(SendBatch(key, 0, 1))
    monkeypatch.undo()

    queued = await store.batches.get(key, SLOTS)
    assert queued is not None
    await sender.run(SendBatch(key, SLOTS, queued.turn))

    waiting = await store.batches.get(key, SLOTS)
    assert waiting is not None
    assert waiting.status is BatchStatus.PLANNED
    assert (await store.batch_sums.totals([key]))[key].sent == 1_000
