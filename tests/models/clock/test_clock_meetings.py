"""Meetings that the machine has found, or that it needs long to find: two operations, and where one of them stood."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from carillon.wire.clock import Retry
from shared.clock.rules.callbacks import RabbitCallback
from shared.clock.rules.recurrence import Every
from shared.clock.rules.schedules import Definition, Misfire, MisfireMode
from shared.clock.schedules import ScheduleFlow, Wanted
from shared.store import Store
from tests.models.clock.target import Answer
from tests.models.clock.verdict import verdict
from tests.models.clock.walks import ALL, Fate, Walk
from tests.models.clock.world import AT_ONCE, Pace, World
from tests.tiers import and_rarely

pytestmark = pytest.mark.native

ONE_TRY = Retry(attempts=1)
BEGINS = 4  # steps of a firing, before that of a suspect's attempt which stores that it begins


@pytest.fixture
async def world(store: Store) -> World:
    return World(store)


def ahead(world: World, seconds: int, **fields: Any) -> Definition:
    instant = world.time.reckon().replace(microsecond=0) + timedelta(seconds=seconds)
    return Definition(callback=RabbitCallback(payload="1", queue="q"), instants=(instant,), **fields)


async def made(world: World, **fields: Any) -> None:
    """A schedule of one instant, a second ahead."""
    definition = ahead(world, 1, **fields)
    await world.call("put", lambda flow: flow.put(Wanted("ns", "a", definition)), AT_ONCE)


async def fired(world: World, scheduler: int, answer: Answer, pace: Pace = AT_ONCE) -> Walk:
    """What is due by a lease from now is claimed by this scheduler and fired."""
    world.time.advance(32)
    await world.claim(scheduler, AT_ONCE)
    walk = await world.fire(scheduler, [answer], pace)
    assert walk is not None
    return walk


async def asked(world: World, what: Callable[[ScheduleFlow], Coroutine[Any, Any, Any]], pace: Pace = AT_ONCE) -> Walk:
    return await world.call("ask", what, pace)


async def suspected(world: World) -> None:
    """What is there has been claimed too often."""
    world.time.advance(32)
    await world.claim_in_vain()


async def check(world: World) -> None:
    for walk in world.under_way:
        await walk.go(ALL, Fate.GOES_ON)
    await world.drain()
    assert await verdict(world) == []


async def test_a_letter_that_dies_again_while_it_is_retried(world: World) -> None:
    await made(world, retry=ONE_TRY)
    await fired(world, 0, Answer.REFUSED)
    letters = await world.letters()
    assert len(letters) == 1
    # Its entry is there again, and its letter still is.
    await asked(world, lambda flow: flow.retry(letters), (3, Fate.SLEEPS))
    await fired(world, 0, Answer.REFUSED)
    await check(world)


async def test_a_resume_that_dies_half_way(world: World) -> None:
    await made(world)
    await asked(world, lambda flow: flow.pause("ns/a"))
    await asked(world, lambda flow: flow.resume("ns/a"), (1, Fate.DIES))
    await check(world)


async def test_a_pause_that_dies_after_a_resume_came_between(world: World) -> None:
    await made(world)
    pause = await asked(world, lambda flow: flow.pause("ns/a"), (1, Fate.SLEEPS))
    await asked(world, lambda flow: flow.resume("ns/a"))
    await pause.go(1, Fate.DIES)
    await check(world)


async def test_a_scheduler_that_dies_while_it_holds_back_what_is_resumed(world: World) -> None:
    await made(world)
    await asked(world, lambda flow: flow.pause("ns/a"), (1, Fate.DIES))
    walk = await fired(world, 0, Answer.CONFIRMED, (2, Fate.SLEEPS))
    await asked(world, lambda flow: flow.resume("ns/a"))
    while walk.at("occurrences.hold_these") is None:
        await walk.go(1, Fate.SLEEPS)
    await walk.die()
    await check(world)


async def test_a_scheduler_that_dies_before_the_dead_letter(world: World) -> None:
    await made(world, retry=ONE_TRY, misfire=Misfire(MisfireMode.SKIP))
    walk = await fired(world, 0, Answer.REFUSED, (0, Fate.SLEEPS))
    while walk.at("outcomes.add") is None:
        await walk.go(1, Fate.SLEEPS)
    await walk.die()
    await check(world)


async def test_a_sleeper_that_wakes_up_when_another_has_delivered(world: World) -> None:
    await made(world, retry=ONE_TRY)
    sleeper = await fired(world, 0, Answer.REFUSED, (0, Fate.SLEEPS))
    while sleeper.at("target.deliver") is None:
        await sleeper.go(1, Fate.SLEEPS)
    await fired(world, 1, Answer.CONFIRMED)
    await sleeper.go(ALL, Fate.GOES_ON)
    assert await world.letters() == []
    await check(world)


async def test_a_pause_after_a_replacement_that_died_half_way(world: World) -> None:
    await made(world)
    await asked(world, lambda flow: flow.put(Wanted("ns", "a", ahead(world, 2))), (2, Fate.DIES))
    await asked(world, lambda flow: flow.pause("ns/a"))
    await asked(world, lambda flow: flow.remove("ns/a"))
    await check(world)


async def test_suspects_whose_processes_die_before_they_begin(world: World) -> None:
    """However many: it was none of their attempts."""
    await made(world, retry=ONE_TRY)
    await suspected(world)
    for _ in range(9):
        await fired(world, 0, Answer.CONFIRMED, (BEGINS, Fate.DIES))
    await fired(world, 0, Answer.CONFIRMED)
    assert await world.letters() == []
    await check(world)


@pytest.mark.parametrize("fate", and_rarely(Fate.UNANSWERED, rarely=(Fate.UNASKED,)))
@pytest.mark.parametrize("steps", [BEGINS, BEGINS + 3, BEGINS + 5])
async def test_a_store_that_is_away_during_attempts_of_a_suspect(world: World, fate: Fate, steps: int) -> None:
    """When the attempt begins, when its outcome is stored, and when it is completed."""
    await made(world, retry=ONE_TRY)
    await suspected(world)
    for _ in range(9):
        if await world.pending():
            await fired(world, 0, Answer.CONFIRMED, (steps, fate))
            await world.claim_in_vain()
    assert await world.letters() == []
    await check(world)


async def test_a_broker_that_does_not_answer_for_a_suspect(world: World) -> None:
    await made(world, retry=ONE_TRY)
    for _ in range(9):
        await suspected(world)
        await fired(world, 0, Answer.UNKNOWN)
    assert await world.letters() == []
    await check(world)


@pytest.mark.parametrize(("deaths", "letters"), [(4, 0), (5, 1)])
async def test_what_each_attempt_dies_of_is_buried(world: World, deaths: int, letters: int) -> None:
    await made(world)
    await suspected(world)
    for _ in range(deaths):
        await fired(world, 0, Answer.CONFIRMED, (BEGINS + 1, Fate.DIES))
    walk = await fired(world, 0, Answer.CONFIRMED)
    assert (walk.at("target.deliver") is None) == bool(letters)
    assert len(await world.letters()) == letters
    await check(world)


async def test_a_suspect_that_is_paused_as_its_attempt_begins(world: World) -> None:
    await made(world, retry=ONE_TRY)
    await suspected(world)
    walk = await fired(world, 0, Answer.CONFIRMED, (BEGINS, Fate.SLEEPS))
    await asked(world, lambda flow: flow.pause("ns/a"))
    await walk.go(ALL, Fate.GOES_ON)
    assert walk.at("occurrences.begin") is not None
    assert walk.at("target.deliver") is None
    [held] = await world.pending()
    assert held.begun == 0
    await check(world)


async def test_a_suspect_that_is_replaced_as_its_attempt_begins(world: World) -> None:
    await made(world, retry=ONE_TRY)
    await suspected(world)
    walk = await fired(world, 0, Answer.CONFIRMED, (BEGINS, Fate.SLEEPS))
    await asked(world, lambda flow: flow.put(Wanted("ns", "a", ahead(world, 2))))
    await walk.go(ALL, Fate.GOES_ON)
    assert walk.at("target.deliver") is None
    await check(world)


async def test_the_next_instant_of_a_series_is_no_suspect(world: World) -> None:
    """Its document moves on whether the instant was delivered or buried."""
    first = world.time.reckon().replace(microsecond=0) + timedelta(seconds=1)
    every = Definition(
        callback=RabbitCallback(payload="1", queue="q"), recurrence=Every(3_600, first), max_occurrences=3
    )
    await world.call("put", lambda flow: flow.put(Wanted("ns", "a", every)), AT_ONCE)
    await suspected(world)
    for _ in range(5):
        await fired(world, 0, Answer.CONFIRMED, (BEGINS + 1, Fate.DIES))
    await fired(world, 0, Answer.CONFIRMED)
    [moved] = await world.pending()
    assert (moved.due, moved.runs, moved.claims, moved.begun) == (first + timedelta(hours=1), 1, 0, 0)
    assert [letter.due for letter in await world.letters()] == [first]
    await check(world)
