"""Subscribers to Lumen's events: three are well, and one does not answer."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from shared.bus.rules.deliveries import (
    BusDeadLetter,
    Cursor,
    DeathReason,
    DeliveryAttempt,
    DeliveryStatus,
    EventDelivery,
    delivery_id,
)
from shared.bus.rules.health import ReceiverHealth
from shared.bus.rules.replays import Replay, ReplaySpan, ReplayState, number_replay
from shared.bus.rules.subscriptions import EventSubscription, subscription_id
from shared.bus.store_cuts import cursor_codec, delivery_codec
from shared.bus.store_deliveries import LETTERS, letter_codec
from shared.store import Store
from tests.services.api.client import Client

TROUBLED = "search-index"
_TOPICS = {
    TROUBLED: ["products", "stores"],
    "billing": ["orders", "refunds"],
    "mail-digest": ["orders"],
    "warehouse": ["orders", "products"],
}
TOPIC = "orders"
_PUBLISHED = {"orders": 1_402_318, "products": 910_224, "refunds": 41_870, "stores": 2_116}
"""How many events there were of each topic."""

WITH_LETTERS = "mail-digest"
_EVENTS = tuple(
    f'{{"topic":"orders","type":"{kind}","url":"https://shop.lumen.example/orders/{number}"}}'.encode()
    for number, kind in ((48_213, "create"), (48_214, "create"), (48_209, "update"))
)
_CUT_EVERY = timedelta(seconds=20)
_DELIVERIES, _OPEN = 86, 12
_ASKED_FOR = timedelta(minutes=5)
_ANSWERS = ((503, "upstream is overloaded"), (502, "bad gateway"), (0, ""))


async def add_subscriptions(client: Client, store: Store, namespace: str, now: datetime) -> tuple[str, str]:
    """Have them made, and one of them fail for four minutes; another has dead letters and replays of the day before:
    the ids of a delivery and of a dead letter."""
    for topic, count in _PUBLISHED.items():
        counted = {"_id": f"{topic}/0", "topic": topic, "n": count, "bytes": count * 214}
        await store._database["bus_topic_counts"].insert_one(counted)
    for key, topics in _TOPICS.items():
        body = {"callback": f"https://{key}.lumen.example/events", "topics": topics, "max_events": 200}
        made = await client.put(f"/bus/subscriptions/{key}", body)
        assert made.status in {200, 201}, made.body
        queue = await _subscription(store, namespace, key)
        await _stand(store, Cursor(id=queue.queue, v=1, sent=184_220, mean_ms=38.0))
    await store._database["bus_topics"].update_many({}, {"$set": {"owner": namespace}})
    troubled = await _subscription(store, namespace, TROUBLED)
    deliveries = [_delivery(troubled.queue, n, now) for n in range(1, _DELIVERIES + 1)]
    await store._database["bus_deliveries"].insert_many([delivery_codec.document(each) for each in deliveries])
    failing = _OPEN * _CUT_EVERY
    await _stand(store, _cursor(troubled.queue, deliveries, now - failing, now))
    return deliveries[-1].id, await _add_letters(store, await _subscription(store, namespace, WITH_LETTERS), now)


async def _add_letters(store: Store, of: EventSubscription, now: datetime) -> str:
    day_ago = now - timedelta(days=1, hours=3)
    letters = [
        BusDeadLetter(
            id=delivery_id(of.queue, number), queue=of.queue, subscription=of.id, namespace=of.namespace, key=of.key,
            reason=DeathReason.ATTEMPTS, died_at=day_ago - timedelta(minutes=4 * number), sequence=number,
            count=len(_EVENTS), size=sum(map(len, _EVENTS)), first_at=day_ago - timedelta(hours=2), events=_EVENTS,
            made=9, attempts=tuple(_refusal(day_ago - timedelta(minutes=20), number, n) for n in range(2)),
        )
        for number in (1, 2, 3)
    ]  # fmt: skip
    await store._database[LETTERS].insert_many([letter_codec.document(each) for each in letters])
    for number, state in ((1, ReplayState.DONE), (2, ReplayState.RUNNING)):
        assert await store.bus_replays.add(_replay(of, number, state, now))
    return letters[0].id


def _replay(of: EventSubscription, number: int, state: ReplayState, now: datetime) -> Replay:
    is_done = state is ReplayState.DONE
    began = now - timedelta(hours=20 if is_done else 0, minutes=2)
    return number_replay(
        of, number, began, since=began - timedelta(hours=6), state=state, is_fixed=True,
        events=18_420 if is_done else 7_360,
        spans=(ReplaySpan("0", "log", 91_200, 109_620 if is_done else 98_560, 109_620),),
        ended_at=began + timedelta(minutes=1) if is_done else None,
    )  # fmt: skip


async def _subscription(store: Store, namespace: str, key: str) -> EventSubscription:
    found = await store.bus_subscriptions.get(subscription_id(namespace, key))
    assert found is not None
    return found


async def _stand(store: Store, cursor: Cursor) -> None:
    document = cursor_codec.document(cursor)
    await store._database["bus_cursors"].replace_one({"_id": cursor.id}, document, upsert=True)


def _cursor(queue: str, deliveries: Sequence[EventDelivery], failing_since: datetime, now: datetime) -> Cursor:
    waiting = [each for each in deliveries if each.status is DeliveryStatus.OPEN]
    health = ReceiverHealth(
        points=62, failures=19, failing_since=failing_since, failed_at=now - timedelta(seconds=21),
        last_attempt_at=now - timedelta(seconds=21), asked_until=now + _ASKED_FOR,
    )  # fmt: skip
    return Cursor(
        id=queue, v=1, sequence=len(deliveries), open=sum(each.count for each in waiting),
        open_deliveries=len(waiting), sent=1_204_518, mean_ms=212.0, health=health,
    )  # fmt: skip


def _delivery(queue: str, number: int, now: datetime) -> EventDelivery:
    """The delivery of this number, of which the last ones are open: their calls have failed."""
    chance = random.Random(number)
    cut = now - (_DELIVERIES + 1 - number) * _CUT_EVERY
    count, ms = chance.randint(120, 200), chance.randint(90, 340)
    taken = DeliveryAttempt(cut + timedelta(milliseconds=40), ms, status=204)
    made = EventDelivery(
        id=delivery_id(queue, number), queue=queue, sequence=number, status=DeliveryStatus.DELIVERED, count=count,
        size=count * 214, first_at=cut - timedelta(seconds=2), cut_at=cut, made=1,
        settled_at=taken.at + timedelta(milliseconds=ms), attempts=(taken,),
    )  # fmt: skip
    if number <= _DELIVERIES - _OPEN:
        return made
    attempts = tuple(_refusal(cut, number, n) for n in range(2))
    events = tuple(b'{"topic":"products","type":"update"}' for _ in range(count))
    return replace(
        made, status=DeliveryStatus.OPEN, events=events, settled_at=None, attempts=attempts, made=2,
        retry_at=now + _ASKED_FOR,
    )  # fmt: skip


def _refusal(cut: datetime, number: int, n: int) -> DeliveryAttempt:
    status, said = _ANSWERS[(number + n) % len(_ANSWERS)]
    at, ms = cut + timedelta(seconds=1 + n * 17), 1_480 + 130 * n if status else 15_000
    error = "" if status else "no answer within 15 s"
    return DeliveryAttempt(at, ms, status=status, error=error, excerpt=said)
