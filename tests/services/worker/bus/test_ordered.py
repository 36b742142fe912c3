"""A queue that is ordered, or becomes so: one delivery at a time, each after the success of the one before it."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest

from shared.domain.bus.cursors import Cursor
from shared.domain.bus.subscriptions import EventSubscription
from tests.services.worker.bus.delivering import WITHIN, Delivering, seconds_between

pytestmark = pytest.mark.native


async def test_one_that_becomes_ordered_while_more_are_open_goes_in_their_order(bus: Delivering) -> None:
    subscription = await bus.subscribe(max_events=1)
    await bus.receiver.answer("/k", 503)
    await bus.publish(subscription, *range(10))
    async with asyncio.timeout(WITHIN):
        while (await bus.cursor(subscription)).health.failures < 2:
            await asyncio.sleep(0.02)
    assert (await bus.cursor(subscription)).open_deliveries == 10
    await bus.subscribe(max_events=1, ordered=True)
    before = len(bus.receiver.arrivals())
    await bus.receiver.answer("/k", 200, seconds=0.05)
    await bus.publish(subscription, 10)
    await bus.sent(subscription, 11)
    # A call that had begun as it became ordered may be among them.
    calls = [arrival for arrival in bus.receiver.arrivals()[before:] if arrival.sequence != 2 or arrival.attempt > 1]
    assert [call.sequence for call in calls] == sorted(call.sequence for call in calls)
    assert {call.sequence for call in calls} >= {1, *range(3, 12)}
    assert all(seconds_between(one.at, other.at) >= 0.05 for one, other in pairwise(calls))


async def test_the_next_one_is_called_when_the_last_is_settled(bus: Delivering) -> None:
    """Else who dies in between would have the first called again after the second."""
    subscription = await bus.subscribe(max_events=1)
    await bus.receiver.answer("/k", 200, 503)
    await bus.publish(subscription, *range(5))
    await bus.arrived(1)
    await bus.subscribe(max_events=1, ordered=True)
    async with asyncio.timeout(WITHIN):
        while (cursor := await bus.cursor(subscription)).sent < 5:
            assert len({arrival.sequence for arrival in bus.receiver.arrivals()}) <= cursor.sent + 2
            await asyncio.sleep(0.005)


async def cursor_when(bus: Delivering, subscription: EventSubscription, holds: Callable[[Cursor], bool]) -> Cursor:
    async with asyncio.timeout(WITHIN):
        while not holds(cursor := await bus.cursor(subscription)):
            await asyncio.sleep(0.02)
    return cursor


async def test_while_nothing_waits_a_receiver_does_not_go_on_failing(bus: Delivering) -> None:
    subscription = await bus.subscribe(max_events=1, ordered=True)
    too_old = {"$set": {"cut_at": await bus.time.now() - timedelta(days=4)}}
    await bus.receiver.answer("/k", 500)
    await bus.publish(subscription, 1, 2)
    failing = await cursor_when(bus, subscription, lambda cursor: cursor.health.is_failing)
    await bus.store._database["bus_deliveries"].update_many({"status": "open"}, too_old)
    one_dead = await cursor_when(bus, subscription, lambda cursor: cursor.dead == 1)
    assert one_dead.health.failing_since == failing.health.failing_since
    await cursor_when(bus, subscription, lambda cursor: cursor.open_deliveries == 1)
    await bus.store._database["bus_deliveries"].update_many({"status": "open"}, too_old)
    both_dead = await cursor_when(bus, subscription, lambda cursor: cursor.dead == 2)
    assert (one_dead.health.idle_since, both_dead.health.failing_since) == (None, failing.health.failing_since)
    assert both_dead.health.idle_since is not None
    await bus.publish(subscription, 3)
    called = await cursor_when(bus, subscription, lambda cursor: cursor.health.idle_since is None)
    assert called.health.idle > timedelta(0)
