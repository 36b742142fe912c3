"""`POST /bus/subscriptions/{key}/test`: the receiver gets what a delivery would be like, and nothing of it is kept."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
import pytest_asyncio

import carillon
from shared.bus.rules.deliveries import TRIAL_URL
from shared.bus.rules.subscriptions import EventForm
from shared.drivers.http.client import HttpOutgoing
from shared.drivers.http.guard import OwnApi
from tests.receivers import HANG
from tests.services.api.bus.conftest import is_refused
from tests.services.api.bus.native.conftest import Delivered
from tests.services.api.client import Client

pytestmark = [pytest.mark.bus_routes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


@asynccontextmanager
async def asking(delivered: Delivered, *, timeout_seconds: float) -> AsyncIterator[Client]:
    """An operator of an API that may call this machine, and knows the secrets' keys."""
    outgoing = HttpOutgoing.open(
        allowed_networks=("127.0.0.0/8",), timeout_seconds=timeout_seconds, connections=0, own=OwnApi("127.0.0.1", 0)
    )
    api = delivered.house.build(bus_outgoing=outgoing, key_ring=delivered.bus.ring)
    yield Client(api, delivered.operator.headers)
    await outgoing.close()


@pytest_asyncio.fixture(loop_scope="module")
async def operator(delivered: Delivered) -> AsyncIterator[Client]:
    async with asking(delivered, timeout_seconds=50) as client:
        yield client


async def test_the_receiver_gets_what_a_delivery_is_like(delivered: Delivered, operator: Client) -> None:
    bus = delivered.bus
    subscription = await bus.subscribe("t", topics=("orders",), headers={"x-team": "shop"}, uuid="me")
    told = await operator.post(delivered.about("subscriptions/t/test"))
    assert (told.status, told.json["status"], told.json["error"], told.json["excerpt"]) == (200, 200, "", "ok")
    await bus.publish(subscription, {"a": 1})
    await bus.sent(subscription, 1)
    trial, delivery = bus.receiver.arrivals("/t")
    assert {*trial.headers} == {*delivery.headers}
    assert [trial.headers[name] for name in ("x-team", "authorization")] == ["shop", delivery.headers["authorization"]]
    assert (trial.sequence, trial.attempt, delivery.sequence) == (0, 1, 1)
    (event,) = trial.events
    assert event == {**event, "id": trial.id, "topic": "orders", "type": "noop", "url": TRIAL_URL}  # type: ignore[dict-item]
    secret = (await bus.subscribing.rotate_secret(subscription.namespace, "t", keep=timedelta(0))).secret
    await operator.post(delivered.about("subscriptions/t/test"))
    last = bus.receiver.arrivals("/t")[-1]
    assert carillon.verify(last.body.encode(), last.headers, secret) == last.id


async def test_nothing_of_a_subscription_changes(delivered: Delivered, operator: Client) -> None:
    bus, path = delivered.bus, delivered.about("subscriptions/f/test")
    subscription = await bus.subscribe("f", form=EventForm.PUBLISHED)
    await bus.rested(subscription)
    before = await bus.cursor(subscription)
    await bus.receiver.answer("/f", 410)
    told = (await operator.post(path)).json
    assert (told["status"], told["error"]) == (410, "")
    await bus.receiver.answer("/f", HANG)
    async with asking(delivered, timeout_seconds=0.5) as hasty:
        told = (await hasty.post(path)).json
    assert (told["status"], bool(told["error"])) == (0, True)
    assert await bus.cursor(subscription) == before
    await bus.subscribe("f", callback="http://10.0.0.1/")  # which this deployment does not allow
    before = await bus.cursor(subscription)
    assert (await operator.post(path)).json["status"] == 0
    assert await bus.cursor(subscription) == before
    assert await bus.deliveries(subscription) == []
    stands = await bus.subscribing.get(subscription.namespace, "f")
    assert stands.is_called
    assert {*bus.receiver.arrivals("/f")[0].events[0]} == {"topic", "type", "url", "t"}  # type: ignore[misc]


async def test_one_test_of_a_subscription_at_a_time(delivered: Delivered, operator: Client) -> None:
    await delivered.bus.subscribe("once")
    await delivered.bus.receiver.answer("/once", HANG)
    path = delivered.about("subscriptions/once/test")
    first = asyncio.create_task(operator.post(path))
    await delivered.bus.arrived(1, "/once")
    assert [(await operator.post(path)).status for _ in range(2)] == [429, 429]
    first.cancel()
    assert is_refused(await delivered.viewer.post(path), 403)
    assert is_refused(await delivered.stranger.post("/bus/subscriptions/once/test"), 404)
