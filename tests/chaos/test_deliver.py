"""Workers of the bus that die, or stop and wake up too late, at every step of a delivery, counted at the receiver.

Every event comes at least once; a delivery has one id and one body on every attempt; no event comes in two deliveries.
"""

import asyncio
import signal
from collections import defaultdict
from collections.abc import Sequence

import pytest

from shared.bus.rules.subscriptions import EventSubscription
from tests.e2e import callees
from tests.e2e.house import House
from tests.services.worker.bus.delivering import Delivering
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

POINTS = [
    "deliver.after_take",
    "deliver.after_cut",
    "deliver.before_call",
    "deliver.after_call",
    "deliver.after_settle",
]
ENVIRONMENT = {
    **callees.OPEN,
    **callees.QUICK,
    "CARILLON_SCHEDULER_LEASE_SECONDS": "6",
    "CARILLON_SCHEDULER_CALL_LEASE_SECONDS": "4",
    "CARILLON_BUS_CALL_SECONDS": "2",
}
QUEUES, EVENTS = 6, 40


async def publish_some(bus: Delivering, subscriptions: Sequence[EventSubscription], first: int = 0) -> None:
    for begin in range(first, first + EVENTS, 5):
        events = [f"{number}" for number in range(begin, begin + 5)]
        await asyncio.gather(*(bus.publish(one, *events) for one in subscriptions))


async def subscribe_some(bus: Delivering) -> list[EventSubscription]:
    return [await bus.subscribe(f"k{number}", max_events=3, timeout_ms=200) for number in range(QUEUES)]


async def check(bus: Delivering, subscriptions: Sequence[EventSubscription], count: int) -> None:
    """Wait for all, then count at the receiver."""

    async def all_sent() -> bool:
        cursors = await bus.store.bus_cursors.read([one.queue for one in subscriptions])
        return all(cursor.sent == count for cursor in cursors.values())

    await until(all_sent, "all to be delivered")
    for number, one in enumerate(subscriptions):
        bodies, places = defaultdict(set), defaultdict(set)
        for arrival in bus.receiver.arrivals(f"/k{number}"):
            bodies[arrival.id].add(arrival.body)
            for event in arrival.events:
                places[event].add(arrival.id)
        assert all(len(found) == 1 for found in bodies.values())
        assert all(len(found) == 1 for found in places.values())
        assert set(places) == {str(event) for event in range(count)}
        cursor = await bus.cursor(one)
        assert (cursor.open, cursor.open_deliveries, cursor.dead, cursor.sequence) == (0, 0, 0, len(bodies))
        chunks = await bus.store._database["bus_chunks"].count_documents({"queue": one.queue})
        assert chunks == 0


@pytest.mark.proof
@pytest.mark.parametrize("point", and_rarely(POINTS[0], rarely=POINTS[1:]))
async def test_a_worker_dies(house: House, bus: Delivering, point: str) -> None:
    await house.start("scheduler", **ENVIRONMENT)
    doomed = await house.start("worker", fault=f"{point}@4=kill", **ENVIRONMENT)
    subscriptions = await subscribe_some(bus)
    await publish_some(bus, subscriptions)
    assert await doomed.gone() == -signal.SIGKILL
    await house.start("worker", **ENVIRONMENT)
    await check(bus, subscriptions, EVENTS)


@pytest.mark.parametrize("point", and_rarely(POINTS[-1], rarely=POINTS[:-1]))
async def test_a_worker_stops_and_wakes_up_too_late(house: House, bus: Delivering, point: str) -> None:
    await house.start("scheduler", **ENVIRONMENT)
    late = await house.start("worker", fault=f"{point}@4=stop", **ENVIRONMENT)
    subscriptions = await subscribe_some(bus)
    await publish_some(bus, subscriptions)
    await late.reached(point)
    await house.start("worker", **ENVIRONMENT)
    await check(bus, subscriptions, EVENTS)
    late.send(signal.SIGCONT)
    await publish_some(bus, subscriptions, EVENTS)
    await check(bus, subscriptions, 2 * EVENTS)
