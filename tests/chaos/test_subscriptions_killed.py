"""Whoever changes a subscription dies right behind the change: the change stands, what follows from it happens by
itself, and no event is lost or comes in two deliveries."""

import asyncio
import json
import signal
from collections.abc import Mapping
from datetime import timedelta

import pytest

from services.embedded.processes import free_port
from shared.bus.rules.subscriptions import EventSubscription, SubscriptionStatus, SubscriptionWish
from shared.bus.rules.wake_ups import FAR_AHEAD
from shared.bus.upkeep import BusRetention
from shared.runtime.bus_settings import BusSettings
from tests.bus.test_retention import Later
from tests.chaos.test_deliver import ENVIRONMENT
from tests.e2e.house import House, Process
from tests.e2e.test_over_http import Customer
from tests.e2e.test_routemaster import ON_BUS, ROOT_KEY, BusClient
from tests.services.worker.bus.delivering import NAMESPACE, Delivering
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

EVENTS = ("0", "1", "2")
LATE = timedelta(minutes=61)


class Subscriber:
    """A client of Routemaster's API, which is subscribed to `a`."""

    def __init__(self, bus: Delivering, port: int, token: str) -> None:
        self._bus = bus
        self._client = BusClient(port, token)
        self._callback = f"{bus.receiver.url}/k"

    async def subscribe(self) -> None:
        await self._client.subscribe("a", self._callback, uuid="x", max=len(EVENTS), timeout=0)

    async def subscription(self) -> EventSubscription:
        (listed,) = await self._bus.store.bus_subscriptions.page(limit=10)
        found = await self._bus.store.bus_subscriptions.get(listed.id)
        assert found is not None
        return found

    async def die_in(self, api: Process, method: str) -> None:
        """Ask for what kills the API, which gives no answer."""
        wish = {"topics": ["a"], "callback": self._callback, "uuid": "x"}
        body = json.dumps(wish).encode() if method == "POST" else None
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await self._client.ask(method, "/subscriber", body)
        assert await api.gone() == -signal.SIGKILL


async def an_api(house: House, bus: Delivering, fault: str) -> tuple[Process, Subscriber]:
    port = free_port()
    api = await house.start("api", fault=fault, **serving(port))
    answer = await BusClient(port, ROOT_KEY).ask("POST", "/api_tokens", b'{"name": "app"}')
    subscriber = Subscriber(bus, port, json.loads(answer.body)["token"])
    await subscriber.subscribe()
    return api, subscriber


def serving(port: int) -> Mapping[str, str]:
    return {**ENVIRONMENT, **ON_BUS, "CARILLON_API_PORT": str(port)}


async def are_sent(bus: Delivering, subscription: EventSubscription) -> None:
    """Wait until all is delivered, in one delivery."""

    async def is_sent() -> bool:
        return (await bus.cursor(subscription)).sent == len(EVENTS)

    await until(is_sent, "all events to be delivered")
    assert {(arrival.id, arrival.sequence) for arrival in bus.receiver.arrivals("/k")} == {
        ((await bus.deliveries(subscription))[0].id, 1)
    }
    assert bus.receiver.arrivals("/k")[-1].events == list(EVENTS)


@pytest.mark.slow
async def test_a_worker_dies_that_has_suspended_a_subscription(house: House, bus: Delivering) -> None:
    await house.start("scheduler", **ENVIRONMENT)
    doomed = await house.start("worker", fault="bus.after_suspend=kill", **ENVIRONMENT)
    subscription = await bus.subscribe("k", max_events=len(EVENTS))
    await bus.receiver.answer("/k", 410)
    await bus.publish(subscription, *EVENTS)
    assert await doomed.gone() == -signal.SIGKILL
    stands = await bus.subscribing.get(subscription.namespace, "k")
    assert (stands.state, "410" in stands.reason) == (SubscriptionStatus.SUSPENDED, True)

    await house.start("worker", **ENVIRONMENT)

    async def rests() -> bool:
        return await bus.fires_at(subscription) == FAR_AHEAD

    await until(rests, "the queue to be looked at and laid down")
    assert len(bus.receiver.arrivals("/k")) == 1
    await bus.receiver.answer("/k", 200)
    await bus.subscribing.resume(subscription.namespace, "k")
    await are_sent(bus, subscription)


async def test_an_api_dies_that_has_resumed_a_subscription(house: House, bus: Delivering) -> None:
    """Nobody asks again: what waited goes out all the same."""
    await house.start("scheduler", **ENVIRONMENT)
    await house.start("worker", **ENVIRONMENT)
    api, subscriber = await an_api(house, bus, "bus.after_resume@2=kill")  # whoever subscribes resumes
    subscription = await subscriber.subscription()
    await bus.subscribing.pause(subscription.namespace, subscription.key)
    await bus.publish(subscription, *EVENTS)
    await bus.rested(subscription)
    assert bus.receiver.arrivals("/k") == []
    await subscriber.die_in(api, "POST")
    assert (await subscriber.subscription()).state is SubscriptionStatus.ACTIVE
    await are_sent(bus, subscription)


async def test_an_api_dies_that_has_removed_a_subscription(house: House, bus: Delivering) -> None:
    """What waited goes an hour later; who subscribes again has a queue of its own."""
    await house.start("scheduler", **ENVIRONMENT)
    api, subscriber = await an_api(house, bus, "bus.after_remove=kill")
    removed, store = await subscriber.subscription(), bus.store
    await bus.subscribing.pause(removed.namespace, removed.key)
    await bus.publish(removed, "old")
    await subscriber.die_in(api, "DELETE")
    assert await store.bus_subscriptions.page(limit=10) == []
    wish = SubscriptionWish(
        namespace=removed.namespace, key=removed.key, callback=removed.callback, topics=("a",), timeout_ms=0
    )
    heir = await bus.subscribing.subscribe(wish)
    await house.start("worker", **ENVIRONMENT)
    await bus.publish(heir.subscription, *EVENTS)
    await are_sent(bus, heir.subscription)

    chunks = store._database["bus_chunks"]
    assert await chunks.count_documents({"queue": removed.queue}) == 1
    assert (await BusRetention(store, Later(store, LATE), BusSettings()).run_once()).discarded == 1
    assert await chunks.count_documents({"queue": removed.queue}) == 0
    assert set(await store.bus_cursors.read([removed.queue, heir.subscription.queue])) == {heir.subscription.queue}


async def test_an_api_dies_that_has_retried_a_dead_letter(house: House, bus: Delivering) -> None:
    """Nobody asks again: the note of whom to wake is found, and the delivery goes out once."""
    subscription = await bus.subscribe("k", max_events=len(EVENTS), max_age_hours=1)
    await bus.publish(subscription, *EVENTS)
    await house.start("scheduler", **ENVIRONMENT)
    await house.start("worker", **ENVIRONMENT)
    await bus.receiver.answer("/k", 503, retry_after="10")
    await bus.arrived(1)
    (delivery,) = await bus.deliveries(subscription)
    old = {"$set": {"cut_at": delivery.cut_at - timedelta(hours=2)}}
    await bus.store._database["bus_deliveries"].update_one({"_id": delivery.id}, old)
    await bus.receiver.answer("/k", 200)

    async def is_dead() -> bool:
        return (await bus.cursor(subscription)).dead == len(EVENTS)

    await until(is_dead, "the delivery to die")
    port = free_port()
    api = await house.start(
        "api", fault="bus.after_retry=kill", CARILLON_API_FIRST_ADMIN="admin@example.com", **serving(port)
    )
    path = f"/bus/dead-letters/{delivery.id}/retry?namespace={NAMESPACE}"
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await Customer(port).call("POST", path)
    assert await api.gone() == -signal.SIGKILL
    assert (await bus.cursor(subscription)).open == len(EVENTS)

    await house.start("feedback-bus", **ENVIRONMENT)
    await are_sent(bus, subscription)
    cursor = await bus.cursor(subscription)
    assert (cursor.dead, cursor.open, len(bus.receiver.arrivals("/k"))) == (0, 0, 2)
