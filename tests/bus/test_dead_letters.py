"""Many dead letters are retried by the page: their queues are woken together."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from shared.bus.deliveries import BusDeadLetterFlow
from shared.bus.replays import BusReplayFlow
from shared.bus.rules.deliveries import BusDeadLetter, DeathReason
from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.rules.wake_ups import Wake
from shared.bus.store_deliveries import letter_codec
from shared.bus.subscriptions import Subscribing, SubscriptionQuotas
from shared.bus.waking import Waker
from shared.drivers.kafka.local import LocalStream
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.drivers.secrets import KeyRing
from shared.store import Store
from shared.time import DatabaseTime
from tests.bus.store.made_subscriptions import NOON, add, no_log

pytestmark = pytest.mark.native


class NotingWaker(Waker):
    """Notes what it is asked for, and does it."""

    asked: list[dict[str, int]]

    async def wake(self, wakes: Sequence[Wake]) -> None:
        told: dict[str, int] = {}
        for wake in wakes:
            told[wake.queue] = told.get(wake.queue, 0) + wake.events
        self.asked = [*getattr(self, "asked", []), told]
        await super().wake(wakes)


def letter_of(subscription: EventSubscription, number: int) -> BusDeadLetter:
    return BusDeadLetter(
        id=f"{subscription.id}-{number}", queue=subscription.queue, subscription=subscription.id,
        namespace=subscription.namespace, key=subscription.key, reason=DeathReason.ATTEMPTS, died_at=NOON,
        sequence=number, count=2, size=4, first_at=NOON, events=(b"{}", b"{}"),
    )  # fmt: skip


async def test_the_queues_of_a_page_are_woken_at_once(store: Store, tmp_path: Path) -> None:
    one, other, gone = [await add(store, key) for key in ("one", "other", "gone")]
    letters = [letter_of(each, number) for each in (one, other, gone) for number in (1, 2, 3)]
    await store._database["bus_dead_letters"].insert_many([letter_codec.document(letter) for letter in letters])
    await store._database["bus_subscriptions"].delete_one({"_id": gone.id})
    time = DatabaseTime(store)
    waker = NotingWaker(store, MemoryBroker(), time, handed_for=timedelta(minutes=1))
    subscribing = Subscribing(store, KeyRing([]), time.now, SubscriptionQuotas(9, 9), no_log)
    log = LocalStream(tmp_path / "log.db")
    replays = BusReplayFlow(store, log, MemoryBroker(), subscribing, time.now, log_topic="log")
    retried = await BusDeadLetterFlow(store, waker, replays, time.now).retry_all("token:n")
    assert (retried.retried, retried.more) == (6, False)
    assert waker.asked == [{one.queue: 6, other.queue: 6}]
    assert await store._database["bus_deliveries"].count_documents({"status": "open"}) == 6
    assert await store._database["bus_unwoken"].count_documents({}) == 0
    assert {left.subscription for left in await store.bus_dead_letters.page("token:n", limit=10)} == {gone.id}
