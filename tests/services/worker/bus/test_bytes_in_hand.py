"""The bytes that all queues of a process hold together are bounded, and nobody waits for ever."""

import asyncio

import pytest

from services.worker.bus.held_queue import ByteShare
from shared.runtime.fair_budget import FairBudget
from tests.services.worker.bus.delivering import Delivering


async def test_who_holds_some_asks_for_no_more_than_there_is() -> None:
    budget = FairBudget(100)
    one, other = ByteShare(budget), ByteShare(budget)
    assert one.can_take("n", 1_000)
    await one.take("n", 40)
    await other.take("m", 40)
    assert (budget.held, one.can_take("n", 10), one.can_take("n", 30)) == (80, True, False)
    one.give_back()
    one.give_back()
    assert (budget.held, one.can_take("n", 1_000)) == (40, True)


@pytest.mark.native
async def test_queues_share_a_budget_that_is_too_small_for_all_and_give_it_back(bus: Delivering) -> None:
    bus.budget.shares.capacity = 7_000
    subscriptions = [await bus.subscribe(f"k{number}", max_events=2) for number in range(6)]
    for round_ in range(3):
        events = ["x" * 500 + str(round_ * 10 + number) for number in range(4)]
        await asyncio.gather(*(bus.publish(one, *events) for one in subscriptions))
    for one in subscriptions:
        await bus.sent(one, 12)
    await bus.rested(*subscriptions)
    assert bus.budget.held == 0
    assert 500 < bus.budget.most_held <= 7_000
