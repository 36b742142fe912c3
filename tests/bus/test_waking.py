"""A worker dies of one wake-up, and takes along whatever else it has in hand: these must not meet for ever."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.rules.wake_ups import DELIVER_QUEUE, SLOW_QUEUE, Wake, WakeStage, WakeUp, queue_owner
from shared.bus.waking import _TOGETHER_SECONDS, Waker, _ring_at
from shared.clock.rules.occurrences import Occurrence
from shared.clock.store_occurrences import fresh_token
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.store import Store
from shared.time import DatabaseTime
from tests.bus.store.made_subscriptions import add
from tests.waiting import until

pytestmark = pytest.mark.native

LEASE = timedelta(minutes=1)
KEYS = ("a", "b", "c", "d")


async def lose(store: Store, subscriptions: list[EventSubscription]) -> list[Occurrence]:
    """Have them taken by somebody who dies, and claimed by the clock."""
    now = await store.now()
    await store._database["occurrences"].update_many({}, {"$set": {"of.not_before": None, "fires_at": now + LEASE}})
    wakes = [Wake(each.queue, now, 100) for each in subscriptions]
    handed = await store.bus_wake_ups.wake(wakes, fresh_token(), now=now, leased_until=now)
    await store.bus_wake_ups.take([(each.id, each.token) for each in handed], "lost", until=now)
    return await claim(store, subscriptions, "lost")


async def claim(store: Store, subscriptions: list[EventSubscription], token: str = "") -> list[Occurrence]:
    change = {"$set": {"token": "clock"}}
    query = {"token": token} if token else {}
    assert (await store._database["occurrences"].update_many(query, change)).modified_count == len(subscriptions)
    return await store.occurrences.read("clock", limit=10)


async def wake_ups(store: Store, subscriptions: list[EventSubscription]) -> list[WakeUp]:
    found = await store.bus_wake_ups.find_all([each.queue for each in subscriptions])
    return [each for each in found if each is not None]


async def test_from_the_third_death_on_they_rest_for_different_times(store: Store) -> None:
    broker = MemoryBroker()
    await broker.setup((DELIVER_QUEUE, SLOW_QUEUE))
    waker = Waker(store, broker, DatabaseTime(store), handed_for=LEASE)
    subscriptions = [await add(store, key) for key in KEYS]
    for deaths in (1, 2):
        await waker.hand_over(await lose(store, subscriptions))
        stand = await wake_ups(store, subscriptions)
        assert {(each.deaths, each.stage) for each in stand} == {(deaths, WakeStage.HANDED)}
        await store._database["occurrences"].update_many({}, {"$set": {"of.stage": WakeStage.RESTING.value}})
    began = await store.now()
    await waker.hand_over(await lose(store, subscriptions))
    stand, ended = await wake_ups(store, subscriptions), await store.now()
    assert {(each.deaths, each.stage) for each in stand} == {(3, WakeStage.RESTING)}
    moments = [each.not_before for each in stand if each.not_before is not None]
    assert (len(moments), len(set(moments)) > 1) == (len(KEYS), True)
    assert all(began <= moment <= ended + timedelta(seconds=8) for moment in moments)
    found = [await store.occurrences.find_upcoming(queue_owner(each.queue), 1) for each in subscriptions]
    assert [(each.visible_at, each.token) for (each,) in found] == [(moment, "") for moment in moments]
    # Events that come meanwhile make none earlier; once rested they go to workers.
    await waker.wake([Wake(each.queue, began, 100) for each in subscriptions])
    assert [each.not_before for each in await wake_ups(store, subscriptions)] == moments
    await waker.hand_over(await claim(store, subscriptions))
    stand = await wake_ups(store, subscriptions)
    assert {(each.deaths, each.stage) for each in stand} == {(3, WakeStage.HANDED)}


@pytest.fixture
async def wakers(store: Store) -> AsyncIterator[list[Waker]]:
    """Two processes with one broker, each with a timer for what comes due within a minute; the clock is away."""
    broker = MemoryBroker()
    await broker.setup((DELIVER_QUEUE, SLOW_QUEUE))
    made = [Waker(store, broker, DatabaseTime(store), handed_for=LEASE, tick=LEASE) for _ in "ab"]
    for waker in made:
        await waker._time.now()
    yield made
    for waker in made:
        await waker.close()


async def told(wakers: list[Waker]) -> int:
    """How many messages workers have got."""
    return await wakers[0]._broker.depth(DELIVER_QUEUE)


async def test_what_is_due_within_a_tick_is_handed_over_then_and_once(store: Store, wakers: list[Waker]) -> None:
    subscription = await add(store, "a")
    due = await store.now() + timedelta(milliseconds=300)
    for waker in wakers:
        await waker.wake([Wake(subscription.queue, due, 1)])
    assert await told(wakers) == 0
    await until(lambda: not any(waker._timers or waker._rung for waker in wakers))
    assert (await told(wakers), await store.now() >= due) == (1, True)


def test_timers_of_one_slice_of_time_ring_together() -> None:
    slices = [_ring_at(1_000 + milliseconds / 1_000) for milliseconds in range(1, 200)]
    assert slices == sorted(slices)
    assert len(set(slices)) <= 200 / (_TOGETHER_SECONDS * 1_000) + 1
    assert all(at >= 1_000 + place / 1_000 for place, at in enumerate(slices, 1))


async def test_what_the_clock_holds_is_left_to_it(store: Store, wakers: list[Waker]) -> None:
    subscription = await add(store, "a")
    await wakers[0].wake([Wake(subscription.queue, await store.now() + timedelta(milliseconds=200), 1)])
    claimed = await claim(store, [subscription])
    await until(lambda: not (wakers[0]._timers or wakers[0]._rung))
    assert await told(wakers) == 0
    await wakers[0].hand_over(claimed)
    assert await told(wakers) == 1


async def test_a_timer_follows_a_wake_up_that_was_moved(store: Store, wakers: list[Waker]) -> None:
    subscription = await add(store, "a")
    now = await store.now()
    await wakers[0].wake([Wake(subscription.queue, now + timedelta(milliseconds=100), 1)])
    later = now + timedelta(milliseconds=600)
    await store._database["occurrences"].update_many({}, {"$set": {"fires_at": later, "visible_at": later}})
    await until(lambda: told(wakers))
    assert await store.now() >= later


async def test_an_earlier_moment_moves_the_timer_and_a_full_queue_needs_none(store: Store, wakers: list[Waker]) -> None:
    subscription = await add(store, "a", max_events=3)
    now, waker = await store.now(), wakers[0]
    for seconds in (40, 20, 30):
        await waker.wake([Wake(subscription.queue, now + timedelta(seconds=seconds), 0)])
    (timer,) = waker._timers.values()
    assert timer.when() <= asyncio.get_running_loop().time() + 20 + _TOGETHER_SECONDS
    await waker.wake([Wake(subscription.queue, now + timedelta(seconds=20), 3)])
    assert (waker._timers, await told(wakers)) == ({}, 1)


async def test_what_is_behind_the_tick_is_left_to_the_clock(store: Store, wakers: list[Waker]) -> None:
    subscription = await add(store, "a")
    await wakers[0].wake([Wake(subscription.queue, await store.now() + 2 * LEASE, 1)])
    assert wakers[0]._timers == {}


async def test_a_process_that_stops_leaves_its_moments_to_the_clock(store: Store, wakers: list[Waker]) -> None:
    subscription = await add(store, "a")
    due = await store.now() + timedelta(milliseconds=100)
    await wakers[0].wake([Wake(subscription.queue, due, 1)])
    await wakers[0].close()
    await wakers[0].wake([Wake(subscription.queue, due, 1)])
    assert (wakers[0]._timers, wakers[0]._rung, await told(wakers)) == ({}, set(), 0)
    (found,) = await store.occurrences.find_upcoming(queue_owner(subscription.queue), 1)
    assert found.visible_at == found.fires_at == due
    await wakers[1].hand_over(await claim(store, [subscription]))
    assert await told(wakers) == 1
