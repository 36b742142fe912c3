"""What is read of open deliveries before one is chosen: nothing that is large."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.bus.rules.deliveries import (
    BusDeadLetter,
    Cursor,
    DeathReason,
    DeliveryAttempt,
    DeliveryStatus,
    EventDelivery,
    bury,
    delivery_id,
)
from shared.bus.store_cuts import CURSORS, DELIVERIES, cursor_codec, delivery_codec
from shared.bus.store_deliveries import LETTERS, letter_codec
from shared.store import Store
from tests.bus.store.made_subscriptions import made

pytestmark = pytest.mark.native

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def delivery(
    queue: str, sequence: int, retry_at: datetime, status: DeliveryStatus = DeliveryStatus.OPEN
) -> EventDelivery:
    return EventDelivery(
        id=delivery_id(queue, sequence),
        queue=queue,
        sequence=sequence,
        status=status,
        events=(b"{}",),
        offsets=(("0", sequence),),
        count=1,
        size=2,
        first_at=NOON,
        cut_at=NOON,
        made=1,
        retry_at=retry_at,
        attempts=(DeliveryAttempt(at=NOON, ms=1, status=500, excerpt="no"),),
    )


async def add(store: Store, *deliveries: EventDelivery) -> None:
    await store._database[DELIVERIES].insert_many([delivery_codec.document(one) for one in deliveries])


async def test_open_ones_are_read_without_events_and_attempts_in_their_turn(store: Store) -> None:
    settled = delivery("a", 4, NOON, DeliveryStatus.DELIVERED)
    first, second, third = delivery("a", 3, NOON), delivery("a", 1, NOON + SECOND), delivery("a", 2, NOON + 2 * SECOND)
    await add(store, third, second, first, settled, delivery("c", 1, NOON))
    found = await store.bus_deliveries.read_open(["a", "b"])
    assert [one.sequence for one in found] == [3, 1, 2]
    assert all((one.events, one.offsets, one.attempts) == ((), (), ()) for one in found)
    assert (found[0].size, found[0].count, found[0].made, found[0].cut_at) == (2, 1, 1, NOON)


async def test_of_each_queue_only_the_one_whose_turn_it_is(store: Store) -> None:
    await add(store, *(delivery("a", number, NOON - number * SECOND) for number in range(1, 6)))
    await add(store, *(delivery("b", number, NOON) for number in range(7, 4, -1)), delivery("c", 1, NOON))
    found = await store.bus_deliveries.read_first_open(["a", "b", "none"])
    assert {(one.queue, one.sequence, one.events, one.attempts) for one in found} == {
        ("a", 5, (), ()),
        ("b", 5, (), ()),
    }


async def test_what_is_opened_again_as_it_is_about_to_be_forgotten_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordered queue whose open delivery is gone would stand still for ever."""
    subscription, deliveries = made(), store.bus_deliveries._deliveries
    _, dead = bury(
        Cursor(id="a", open=1, open_deliveries=1), delivery("a", 5, NOON), subscription, DeathReason.AGE, NOON
    )
    assert dead.letter is not None
    letter: BusDeadLetter = dead.letter
    await store._database[CURSORS].insert_one(cursor_codec.document(Cursor(id="a", sequence=9, dead=1)))
    await store._database[LETTERS].insert_one(letter_codec.document(letter))
    await add(store, dead.after, delivery("a", 6, NOON, DeliveryStatus.DELIVERED))

    class Raced:
        """The collection; right before something is deleted, somebody retries."""

        find = deliveries.find

        async def delete_many(self, query: Mapping[str, Any]) -> object:
            assert (await store.bus_dead_letters.retry(letter, NOON)).unwoken is not None
            return await deliveries.delete_many(query)

    monkeypatch.setattr(store.bus_deliveries, "_deliveries", Raced())
    assert await store.bus_deliveries.forget_below("a", 9, 500) == 1
    monkeypatch.undo()
    assert [one.sequence for one in await store.bus_deliveries.read_open(["a"])] == [5]
