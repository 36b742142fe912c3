"""`/bus/dead-letters`: a delivery that was given up is shown, delivered again under its id, or discarded."""

from datetime import timedelta

import pytest

from shared.bus.rules.deliveries import MOST_OPEN
from shared.bus.rules.subscriptions import EventSubscription
from tests.services.api.bus.conftest import is_refused
from tests.services.api.bus.native.conftest import Delivered
from tests.services.worker.bus.delivering import NAMESPACE
from tests.waiting import until

pytestmark = [pytest.mark.bus_routes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def buried(delivered: Delivered, key: str, event: str) -> EventSubscription:
    """A subscription whose only delivery has died of its age. Its receiver takes all from now on."""
    bus = delivered.bus
    subscription = await bus.subscribe(key, max_events=1)
    await bus.receiver.answer(f"/{key}", 503, retry_after="2")
    await bus.publish(subscription, event)
    await bus.arrived(1, f"/{key}")
    old = {"$set": {"cut_at": await bus.time.now() - timedelta(hours=73)}}

    async def is_dead() -> bool:
        await bus.store._database["bus_deliveries"].update_many({"queue": subscription.queue}, old)
        return (await bus.cursor(subscription)).dead == 1

    await until(is_dead, "the delivery to die")
    await bus.receiver.answer(f"/{key}", 200)
    return subscription


async def test_a_dead_letter_is_shown_and_delivered_again_under_its_id(delivered: Delivered) -> None:
    bus, letters = delivered.bus, delivered.about("dead-letters", "key=d")
    subscription = await buried(delivered, "d", "secret")
    first, *_ = bus.receiver.arrivals("/d")
    (listed,) = (await delivered.viewer.get(letters)).json
    assert (listed["id"], listed["key"], listed["reason"], listed["count"]) == (first.id, "d", "age", 1)
    assert (listed["attempts"][0]["status"], listed["can_be_retried"]) == (503, True)
    one = delivered.about(f"dead-letters/{first.id}")
    assert (await delivered.operator.get(one)).json["events"] == ["secret"]
    hidden = (await delivered.viewer.get(one)).json
    assert (hidden["redacted"], hidden["events"]) == (True, [])

    again = delivered.about(f"dead-letters/{first.id}/retry")
    assert is_refused(await delivered.viewer.post(again), 403)
    assert is_refused(await delivered.stranger.post(again), 403)
    assert is_refused(await delivered.stranger.post(f"/bus/dead-letters/{first.id}/retry"), 404)
    retried = await delivered.operator.post(again)
    assert (retried.status, retried.json) == (202, {"id": first.id})
    cursor = await bus.sent(subscription, 1)
    assert (cursor.dead, cursor.open, cursor.open_deliveries) == (0, 0, 0)
    last = bus.receiver.arrivals("/d")[-1]
    assert (last.id, last.sequence, last.body) == (first.id, first.sequence, '["secret"]')
    assert is_refused(await delivered.operator.post(again), 404)
    assert (await delivered.operator.get(letters)).json == []
    assert await bus.store.bus_flushes.find_unwoken(await bus.time.now() + timedelta(hours=1), 10) == []


async def test_all_of_a_key_are_retried_at_once_though_their_deliveries_are_forgotten(delivered: Delivered) -> None:
    subscription = await buried(delivered, "e", "1")
    await delivered.bus.store._database["bus_deliveries"].delete_many({"queue": subscription.queue})
    path = delivered.about("dead-letters/retry")
    assert (await delivered.operator.post(path, {"key": "nobody"})).json == {"retried": 0, "more": False}
    assert is_refused(await delivered.operator.post(path, {"keys": "e"}), 422)
    assert (await delivered.operator.post(path, {"key": "e"})).json == {"retried": 1, "more": False}
    assert (await delivered.bus.sent(subscription, 1)).dead == 0


async def test_what_cannot_be_retried_says_why_and_may_be_discarded(delivered: Delivered) -> None:
    bus = delivered.bus
    subscription = await buried(delivered, "f", "1")
    (letter,) = await bus.store.bus_dead_letters.page(NAMESPACE, key="f", limit=2)
    path = delivered.about(f"dead-letters/{letter.id}/retry")
    cursors = bus.store._database["bus_cursors"]
    await cursors.update_one({"_id": subscription.queue}, {"$inc": {"open_deliveries": MOST_OPEN, "v": 1}})
    assert is_refused(await delivered.operator.post(path), 409)
    await cursors.update_one({"_id": subscription.queue}, {"$inc": {"open_deliveries": -MOST_OPEN, "v": 1}})
    await bus.subscribing.unsubscribe(NAMESPACE, "f")
    assert is_refused(await delivered.operator.post(path), 409)
    discard = delivered.about(f"dead-letters/{letter.id}/discard")
    assert (await delivered.operator.post(discard)).status == 204
    assert is_refused(await delivered.operator.post(discard), 404)
