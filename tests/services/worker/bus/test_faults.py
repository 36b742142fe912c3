"""Faults of ours: who meets one and lives gives the wake-up back, with a pause that grows, and is no death."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from services.worker.bus.grouped import GroupedStore
from shared.bus.rules.subscriptions import EventSubscription, SubscriptionStatus
from shared.bus.rules.wake_ups import Wake, queue_owner
from shared.bus.waking import DueQueues
from shared.clock.store_occurrences import fresh_token
from shared.store import Store
from tests.services.worker.bus.delivering import LEASE, NAMESPACE, Delivering
from tests.waiting import until

pytestmark = pytest.mark.native


async def wake_up(bus: Delivering, subscription: EventSubscription) -> dict[str, Any]:
    found = await bus.store._database["occurrences"].find_one({"owner": f"bus/{subscription.queue}"})
    assert found is not None
    return found


async def met_faults(bus: Delivering, subscription: EventSubscription, count: int) -> dict[str, Any]:
    """Wait until its wake-up lies down after so many."""

    async def find() -> dict[str, Any] | None:
        found = await wake_up(bus, subscription)
        return found if found["of"].get("faults") == count and "token" not in found else None

    met: dict[str, Any] = await until(find)
    return met


async def set_broken(store: Store, subscription: EventSubscription, max_events: object) -> None:
    change = {"$set": {"max_events": max_events}}
    await store._database["bus_subscriptions"].update_one({"_id": subscription.id}, change)


@pytest.mark.slow
async def test_a_fault_in_a_live_worker_is_no_death_and_its_pauses_grow(bus: Delivering) -> None:
    subscription = await bus.subscribe()
    await bus.store._database["occurrences"].update_many({}, {"$set": {"of.deaths": 19}})
    await set_broken(bus.store, subscription, "many")
    await bus.publish(subscription, 1)
    first = await met_faults(bus, subscription, 1)
    assert (first["of"]["deaths"], first["of"]["stage"], first["claims"]) == (0, "resting", 0)
    # An event that comes meanwhile makes nobody try earlier.
    await bus.publish(subscription, 2)
    assert (await wake_up(bus, subscription))["fires_at"] == first["fires_at"] == first["of"]["not_before"]
    second = await met_faults(bus, subscription, 2)
    # Half of the four seconds is left to chance.
    assert second["fires_at"] - first["fires_at"] >= timedelta(seconds=2)
    await set_broken(bus.store, subscription, 100)
    await bus.sent(subscription, 2)
    await bus.rested(subscription)
    assert (await wake_up(bus, subscription))["of"]["faults"] == 0
    assert (await bus.subscribing.get(NAMESPACE, "k")).state is SubscriptionStatus.ACTIVE


@pytest.mark.parametrize("order", [("earlier", "later"), ("later", "earlier")])
async def test_of_two_claims_of_one_wake_up_the_later_one_is_handed_over(
    bus: Delivering, order: tuple[str, str]
) -> None:
    """Whichever the clock brings first."""
    subscription, other = await bus.subscribe(), await bus.subscribe("other")
    (found,) = await bus.store.occurrences.find_upcoming(queue_owner(subscription.queue), 1)
    (first,) = await bus.store.occurrences.find_upcoming(queue_owner(other.queue), 1)
    change = {"$set": {"token": "later", "visible_at": await bus.time.now() + LEASE}}
    await bus.store._database["occurrences"].update_one({"_id": found.id}, change)
    due = DueQueues(bus.waker)
    claims = [first, *(replace(found, token=token) for token in order)]
    await asyncio.gather(*(due.begin(claim) for claim in claims))

    async def rests() -> bool:
        return bool((await wake_up(bus, subscription))["of"]["stage"] == "resting")

    await until(rests)
    assert (await wake_up(bus, subscription)).get("token") is None


async def test_wake_ups_that_cannot_be_read_when_they_are_taken_come_due_again(bus: Delivering) -> None:
    subscription = await bus.subscribe()
    now = await bus.time.now()
    wakes = [Wake(subscription.queue, now, 1)]
    (handed,) = await bus.store.bus_wake_ups.wake(wakes, fresh_token(), now=now, leased_until=now + LEASE)
    await bus.store._database["occurrences"].update_many({}, {"$set": {"of.slow": "perhaps"}})
    grouped = GroupedStore(bus.store, bus.time, bus.waker, lease=LEASE)
    with pytest.raises(msgspec.ValidationError):
        await grouped.take((handed.id, handed.token))
    found = await wake_up(bus, subscription)
    assert (found["of"]["stage"], "token" in found) == ("resting", False)
    assert found["fires_at"] < now + LEASE


@pytest.mark.parametrize("status", [410, 500])
async def test_what_an_old_callback_answers_late_suspends_nobody(
    bus: Delivering, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    subscription, changed = await bus.subscribe(), asyncio.Event()

    async def hold_answer(point: str) -> None:
        if point == "deliver.after_call":
            await changed.wait()

    monkeypatch.setattr("services.worker.bus.queue_run.fault", hold_answer)
    since = await bus.time.now() - timedelta(days=6)
    await bus.store._database["bus_cursors"].update_many({}, {"$set": {"health.failing_since": since}})
    await bus.receiver.answer("/k", status)
    await bus.publish(subscription, 1)
    await bus.arrived(1, "/k")
    await bus.subscribe(callback=f"{bus.receiver.url}/other")
    changed.set()
    await bus.sent(subscription, 1)
    assert [arrival.path for arrival in bus.receiver.arrivals()] == ["/k", "/other"]
    assert (await bus.subscribing.get(NAMESPACE, "k")).state is SubscriptionStatus.ACTIVE
