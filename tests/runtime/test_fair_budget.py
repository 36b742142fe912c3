"""What is bounded is had in turn, and no owner's wishes keep it from the others."""

import asyncio
from collections.abc import Sequence

from shared.runtime.fair_budget import FairBudget


async def ask(budget: FairBudget, *asked: tuple[str, int]) -> Sequence["asyncio.Task[None]"]:
    """Ask for these in this order, and let everybody come as far as they can."""
    tasks = []
    for owner, size in asked:
        tasks.append(asyncio.create_task(budget.take(owner, size)))
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_one_owner_has_three_quarters_at_most_and_the_next_one_waits_for_nothing() -> None:
    budget = FairBudget(48)
    greedy = await ask(budget, *[("greedy", 1)] * 60)
    assert (budget.held, sum(task.done() for task in greedy)) == (36, 36)
    assert not budget.has_room("greedy", 1)
    assert budget.has_room("other", 10)
    (other,) = await ask(budget, ("other", 10))
    assert other.done()
    budget.give_back("other", 10)
    for _ in range(36):
        budget.give_back("greedy")
    await asyncio.gather(*greedy)
    assert (budget.held, budget.most_held) == (24, 46)


async def test_more_than_there_is_is_had_alone_and_the_small_ones_do_not_overtake_it() -> None:
    budget = FairBudget(100)
    first, huge, small = await ask(budget, ("first", 60), ("huge", 1_000), ("small", 10))
    assert (first.done(), huge.done(), small.done()) == (True, False, False)
    assert not budget.has_room("another", 1)
    budget.give_back("first", 60)
    await huge
    assert (budget.held, small.done()) == (1_000, False)
    budget.give_back("huge", 1_000)
    await small
    assert budget.held == 10


async def test_owners_who_wait_take_turns() -> None:
    budget = FairBudget(3)
    await ask(budget, ("all", 3))
    waiting = await ask(budget, ("a", 1), ("a", 1), ("a", 1), ("b", 1), ("c", 1))
    budget.give_back("all", 3)
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, False, False, True, True]
    for task in waiting:
        task.cancel()


async def test_who_stops_waiting_holds_up_nobody() -> None:
    budget = FairBudget(100)
    await ask(budget, ("one", 99))
    gone, large, small = await ask(budget, ("gone", 90), ("large", 2), ("small", 1))
    gone.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (large.done(), small.done()) == (False, False)  # the large one has its turn now
    large.cancel()
    await small
    assert budget.held == 100
    # One that was let in and is cancelled in the same moment has nothing.
    (late,) = await ask(budget, ("late", 50))
    budget.give_back("one", 99)
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    assert budget.held == 1
