"""A queue that is ordered, or becomes so: one delivery at a time, each after the success of the one before it."""

from datetime import timedelta
from itertools import pairwise

import pytest

from tests.services.worker.bus.delivering import Delivering, seconds_between
from tests.waiting import until

pytestmark = pytest.mark.native


async def test_one_that_becomes_ordered_while_more_are_open_goes_in_their_order(bus: Delivering) -> None:
    subscription = await bus.subscribe(max_events=1)
    await bus.receiver.answer("/k", 503)
    await bus.publish(subscription, *range(10))
    failing = await bus.cursor_when(subscription, lambda cursor: cursor.health.failures >= 2)
    assert failing.open_deliveries == 10
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

    async def all_are_sent() -> bool:
        called = len({arrival.sequence for arrival in bus.receiver.arrivals()})
        sent = (await bus.cursor(subscription)).sent
        assert called <= sent + 2
        return sent == 5

    await until(all_are_sent)


async def test_while_nothing_waits_a_receiver_does_not_go_on_failing(bus: Delivering) -> None:
    subscription = await bus.subscribe(max_events=1, ordered=True)
    too_old = {"$set": {"cut_at": await bus.time.now() - timedelta(days=4)}}
    await bus.receiver.answer("/k", 500)
    await bus.publish(subscription, 1, 2)
    failing = await bus.cursor_when(subscription, lambda cursor: cursor.health.is_failing)
    await bus.store._database["bus_deliveries"].update_many({"status": "open"}, too_old)
    one_dead = await bus.cursor_when(subscription, lambda cursor: cursor.dead == 1)
    assert one_dead.health.failing_since == failing.health.failing_since
    await bus.cursor_when(subscription, lambda cursor: cursor.open_deliveries == 1)
    await bus.store._database["bus_deliveries"].update_many({"status": "open"}, too_old)
    both_dead = await bus.cursor_when(subscription, lambda cursor: cursor.dead == 2)
    assert (one_dead.health.idle_since, both_dead.health.failing_since) == (None, failing.health.failing_since)
    assert both_dead.health.idle_since is not None
    await bus.publish(subscription, 3)
    called = await bus.cursor_when(subscription, lambda cursor: cursor.health.idle_since is None)
    assert called.health.idle > timedelta(0)
