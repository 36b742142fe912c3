"""Meetings of an anchor or a calendar that changes with a scheduler that fires, or with another request."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from shared.clock.rules.calendars import Shift
from shared.clock.rules.callbacks import RabbitCallback
from shared.clock.rules.instants import with_anchor
from shared.clock.rules.recurrence import Every
from shared.clock.rules.schedules import Definition
from shared.clock.schedules import Wanted
from shared.store import Store
from tests.models.clock.shapes import DAY, ms_of
from tests.models.clock.target import Answer
from tests.models.clock.test_clock_meetings import check, fired, made
from tests.models.clock.walks import ALL, Fate, Walk
from tests.models.clock.world import AT_ONCE, CALENDAR, Pace, World

pytestmark = pytest.mark.native

CALLBACK = RabbitCallback(payload="1", queue="q")


@pytest.fixture
async def world(store: Store) -> World:
    return World(store)


async def given(world: World, offsets: Sequence[int], anchor: int = 0, pace: Pace = AT_ONCE) -> Walk:
    """The schedule has these offsets, from an anchor so many seconds ahead."""
    at = world.time.reckon().replace(microsecond=0) + timedelta(seconds=anchor)
    definition = with_anchor(Definition(callback=CALLBACK, offsets_ms=ms_of(offsets)), at)
    return await world.call("put", lambda flow: flow.put(Wanted("ns", "a", definition)), pace)


async def series(world: World, days: int, runs: int, shift: Shift = Shift.NONE) -> None:
    """A series that begins in a second, and has an instant every so many days."""
    first = world.time.reckon().replace(microsecond=0) + timedelta(seconds=1)
    definition = Definition(
        callback=CALLBACK,
        recurrence=Every(days * DAY, first),
        max_occurrences=runs,
        exclude=(CALENDAR,),
        shift=shift,
    )
    await world.call("put", lambda flow: flow.put(Wanted("ns", "a", definition)), AT_ONCE)


async def move(world: World, ahead: int, pace: Pace = AT_ONCE) -> Walk:
    anchor = world.time.reckon().replace(microsecond=0) + timedelta(seconds=ahead)
    return await world.move("a", anchor, pace)


async def exclude(world: World, *days: int) -> None:
    """The calendar has the days that are so many days ahead."""
    today = world.time.reckon().date()
    await world.put_calendar([str(today + timedelta(days=each)) for each in days], "UTC", AT_ONCE)


async def up_to(walk: Walk, step: str) -> None:
    """The walk goes on until it has taken this step."""
    while walk.at(step) is None:
        assert not walk.over
        await walk.go(1, Fate.SLEEPS)


async def test_an_anchor_that_moves_while_an_offset_is_fired(world: World) -> None:
    await given(world, [0, 60], anchor=1)
    walk = await fired(world, 0, Answer.CONFIRMED, (0, Fate.SLEEPS))
    await up_to(walk, "target.deliver")
    await move(world, 5)
    await walk.go(ALL, Fate.GOES_ON)
    await check(world)


async def test_an_anchor_that_moves_before_its_claimed_offset_is_looked_up(world: World) -> None:
    await given(world, [0, 60], anchor=1)
    walk = await fired(world, 0, Answer.CONFIRMED, (1, Fate.SLEEPS))
    await move(world, 5)
    await walk.go(ALL, Fate.GOES_ON)
    await check(world)


async def test_a_move_whose_process_dies(world: World) -> None:
    await given(world, [0, 60], anchor=100)
    walk = await move(world, 50, (0, Fate.SLEEPS))
    await up_to(walk, "schedules.amend")
    await walk.die()
    await world.follow(AT_ONCE)
    await check(world)


async def test_a_move_that_overtakes_no_other_change(world: World) -> None:
    """It has read what was there before an offset was dropped."""
    await given(world, [0, 60], anchor=10)
    walk = await move(world, 50, (1, Fate.SLEEPS))
    await given(world, [60], anchor=20)
    await walk.go(ALL, Fate.GOES_ON)
    await check(world)


async def test_an_offset_that_has_fired_and_is_dropped_and_given_again(world: World) -> None:
    await given(world, [0, 600], anchor=1)
    await fired(world, 0, Answer.CONFIRMED)
    await given(world, [600])
    await given(world, [0, 600], anchor=5)
    await check(world)


async def test_a_parked_offset_whose_move_is_completed_late(world: World) -> None:
    """It was ahead when the caller moved its anchor, and is past when the move is completed."""
    await given(world, [-20, 40])
    walk = await move(world, 25, (0, Fate.SLEEPS))
    await up_to(walk, "schedules.amend")
    await walk.die()
    world.time.advance(10)
    await world.follow(AT_ONCE)
    await check(world)


async def test_an_offset_that_comes_back_as_the_process_that_drops_it_dies(world: World) -> None:
    await given(world, [0, 60], anchor=10)
    walk = await given(world, [60], 10, (0, Fate.SLEEPS))
    await up_to(walk, "schedules.amend")
    await given(world, [0, 60], anchor=10)
    await walk.die()
    await check(world)


async def test_an_offset_that_two_requests_give(world: World) -> None:
    """One of them sleeps until it has fired."""
    await given(world, [60], anchor=1)
    walk = await given(world, [0, 60], 1, (0, Fate.SLEEPS))
    await up_to(walk, "outcomes.find_ended")
    await given(world, [0, 60, 90], anchor=1)
    await fired(world, 0, Answer.CONFIRMED)
    await walk.go(ALL, Fate.GOES_ON)
    await check(world)


async def test_an_offset_that_is_dropped_and_given_again_while_it_is_fired(world: World) -> None:
    """No process dies, and none is slow."""
    await given(world, [0, 60], anchor=1)
    walk = await fired(world, 0, Answer.CONFIRMED, (0, Fate.SLEEPS))
    await up_to(walk, "target.deliver")
    await given(world, [60], anchor=1)
    await given(world, [0, 60], anchor=1)
    await walk.go(ALL, Fate.GOES_ON)
    await check(world)
    assert all(len(each) == 1 for each in world.ledger.attempts.values())


async def test_a_dropped_offset_that_comes_back_as_a_scheduler_takes_it_for_void(world: World) -> None:
    await given(world, [0, 7_200], anchor=3_700)
    walk = await given(world, [7_200], 3_700, (0, Fate.SLEEPS))
    await up_to(walk, "schedules.amend")
    await walk.die()
    world.time.advance(3_700)
    scheduler = await fired(world, 0, Answer.CONFIRMED, (0, Fate.SLEEPS))
    await up_to(scheduler, "schedules.many")
    await given(world, [0, 7_200], anchor=5)
    await scheduler.go(ALL, Fate.GOES_ON)
    await check(world)


async def test_a_day_that_is_added_while_its_series_is_claimed(world: World) -> None:
    await series(world, days=1, runs=2)
    walk = await fired(world, 0, Answer.CONFIRMED, (1, Fate.SLEEPS))
    await exclude(world, 0)
    await walk.go(ALL, Fate.GOES_ON)
    await check(world)


async def test_days_that_are_taken_off(world: World) -> None:
    await exclude(world, 1, 2, 3)
    await series(world, days=1, runs=3)
    await fired(world, 0, Answer.CONFIRMED)
    await exclude(world)
    await world.follow(AT_ONCE)
    [entry] = await world.pending()
    assert entry.due - world.time.reckon() < timedelta(days=1)
    await check(world)


async def test_an_instant_that_is_shifted_onto_another_one(world: World) -> None:
    await exclude(world, 1)
    await series(world, days=1, runs=3, shift=Shift.PREVIOUS)
    await fired(world, 0, Answer.CONFIRMED)
    await check(world)


async def test_a_day_that_is_taken_off_after_its_shifted_instant_has_fired(world: World) -> None:
    await series(world, days=2, runs=3, shift=Shift.PREVIOUS)
    await exclude(world, 2)
    await fired(world, 0, Answer.CONFIRMED)
    world.time.advance(DAY)
    await fired(world, 0, Answer.CONFIRMED)
    await exclude(world)
    await world.follow(AT_ONCE)
    await check(world)


async def test_a_day_that_is_added_after_a_merged_instant_has_fired(world: World) -> None:
    """The first instant is shifted onto the second; the day of both is excluded while they are fired."""
    await exclude(world, 1)
    await series(world, days=1, runs=3, shift=Shift.NEXT)
    await fired(world, 0, Answer.CONFIRMED)
    world.time.advance(2 * DAY)
    walk = await fired(world, 0, Answer.CONFIRMED, (0, Fate.SLEEPS))
    await up_to(walk, "target.deliver")
    await exclude(world, 1, 2)
    await walk.go(ALL, Fate.GOES_ON)
    await world.follow(AT_ONCE)
    await check(world)


async def test_a_day_that_is_added_and_removed_before_a_shifted_instant_fires(world: World) -> None:
    await series(world, days=2, runs=3, shift=Shift.PREVIOUS)
    await fired(world, 0, Answer.CONFIRMED)
    world.time.advance(DAY + DAY // 2)
    for days in ([0], []):
        await exclude(world, *days)
        await world.follow(AT_ONCE)
    [entry] = await world.pending()
    assert entry.due - world.time.reckon() < timedelta(days=1)
    await check(world)


async def test_a_parked_offset_of_a_schedule_that_was_never_stored(world: World) -> None:
    """It keeps no other schedule of its key from its end."""
    walk = await given(world, [-20, 40], 0, (0, Fate.SLEEPS))
    await up_to(walk, "occurrences.add")
    await walk.die()
    await made(world)
    await check(world)
