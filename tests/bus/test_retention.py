"""What is left of a removed subscription goes after an hour, and nothing of the one that stands in its place."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from shared.bus import store_queues as queues
from shared.bus import upkeep
from shared.bus.rules.deliveries import DeliveryStatus, EventDelivery
from shared.bus.rules.subscriptions import EventSubscription, SubscriptionStatus
from shared.bus.store_cuts import delivery_codec
from shared.bus.store_log import LogPosition
from shared.bus.upkeep import BusRetention
from shared.drivers.mongo.transactions import OwnSession
from shared.runtime.bus_settings import BusSettings
from shared.store import Store
from shared.time import DatabaseTime
from tests.bus.store.made_subscriptions import NOON, add, change, chunk, flush_of, version

pytestmark = pytest.mark.native

LOG = "log/0"


class Later(DatabaseTime):
    """The database's time, so much later."""

    def __init__(self, store: Store, later: timedelta) -> None:
        super().__init__(store)
        self._later = later

    async def now(self) -> datetime:
        return await super().now() + self._later


@pytest.fixture
async def session(store: Store) -> AsyncIterator[OwnSession]:
    opened = store.bus_flushes.open_session()
    await store.bus_flushes.take_over({LOG: ""}, opened)
    yield opened
    await opened.close()


async def retain(store: Store, later: timedelta) -> int:
    return (await BusRetention(store, Later(store, later), BusSettings()).run_once()).discarded


async def chunks_of(store: Store, *subscriptions: EventSubscription) -> list[int]:
    chunks = store._database["bus_chunks"]
    return [await chunks.count_documents({"queue": each.queue}) for each in subscriptions]


async def test_a_removed_one_goes_with_its_queue_and_its_heir_stays(store: Store, session: OwnSession) -> None:
    now = await store.now()
    old, other = await add(store, "k", "a"), await add(store, "other", "a")
    known = await version(store)
    gone = await store.bus_subscriptions.get(old.id)
    assert gone is not None
    removed = await change(store, gone, state=SubscriptionStatus.REMOVED, now=now)
    assert removed is not None
    heir = await change(store, removed, state=SubscriptionStatus.ACTIVE, generation="heir", now=now)
    assert heir is not None
    assert await version(store) == known + 2
    chunks = [chunk(each.queue, (LOG, number)) for each in (old, heir, other) for number in range(30)]
    flush = flush_of(await version(store), {LOG: (LogPosition(), 99)}, *chunks)
    await store.bus_flushes.flush(flush, session)

    assert await retain(store, timedelta(minutes=59)) == 0
    assert await chunks_of(store, old, heir, other) == [30, 30, 30]
    assert await retain(store, timedelta(minutes=61)) == 30
    assert await chunks_of(store, old, heir, other) == [0, 30, 30]
    assert set(await store.bus_cursors.read([old.queue, heir.queue, other.queue])) == {heir.queue, other.queue}
    assert await retain(store, timedelta(minutes=61)) == 0
    assert await store.bus_subscriptions.get(old.id) == heir


async def test_the_pressure_leaves_out_what_a_removed_one_left(store: Store, session: OwnSession) -> None:
    old, other = await add(store, "k", "a"), await add(store, "other", "a")
    chunks = [chunk(each.queue, (LOG, 0)) for each in (old, other)]
    await store.bus_flushes.flush(flush_of(await version(store), {LOG: (LogPosition(), 1)}, *chunks), session)
    await fill(store, old.queue, 0, still_open=2)
    backlog = await store.bus_standings.read_all()
    assert (backlog and backlog.events) == 4
    assert await change(store, old, state=SubscriptionStatus.REMOVED, now=await store.now())
    backlog = await store.bus_standings.read_all()
    assert (backlog and backlog.events) == 1


async def test_the_pressure_looks_for_so_many_removed_ones_and_no_more(
    store: Store, session: OwnSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = [await add(store, key, "a") for key in ("k", "l")]
    chunks = [chunk(each.queue, (LOG, 0)) for each in removed]
    await store.bus_flushes.flush(flush_of(await version(store), {LOG: (LogPosition(), 1)}, *chunks), session)
    for each in removed:
        assert await change(store, each, state=SubscriptionStatus.REMOVED, now=await store.now())
    assert await store.bus_standings.read_all() is None
    monkeypatch.setattr(queues, "_GONE_LEFT_OUT", 1)
    backlog = await store.bus_standings.read_all()
    assert (backlog and backlog.events) == 1


async def test_a_removed_one_that_nobody_made_again_is_forgotten(store: Store) -> None:
    now = await store.now()
    old = await add(store, "k", "a")
    assert await change(store, old, state=SubscriptionStatus.REMOVED, now=now)
    assert await retain(store, timedelta(minutes=61)) == 1
    assert await store.bus_subscriptions.get(old.id) is None
    assert await store.bus_cursors.read([old.queue]) == {}


async def fill(store: Store, queue: str, settled: int, *, still_open: int = 0) -> None:
    """Give a queue so many deliveries, the open ones first."""
    made = [
        EventDelivery(
            id=f"{queue}/{sequence}",
            queue=queue,
            sequence=sequence,
            count=1,
            first_at=NOON,
            cut_at=NOON,
            status=DeliveryStatus.OPEN if sequence <= still_open else DeliveryStatus.DELIVERED,
            settled_at=None if sequence <= still_open else await store.now(),
        )
        for sequence in range(1, settled + still_open + 1)
    ]
    await store._database["bus_deliveries"].insert_many([delivery_codec.document(each) for each in made])
    change = {"$set": {"sequence": made[-1].sequence}}
    await store._database["bus_cursors"].update_one({"_id": queue}, change)


async def kept(store: Store, queue: str) -> list[int]:
    found = store._database["bus_deliveries"].find({"queue": queue}).sort("sequence")
    return [document["sequence"] for document in await found.to_list()]


async def test_no_more_than_the_latest_are_kept_whatever_is_open(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_SOME", 2)
    busy, other, calm = [(await add(store, key)).queue for key in ("busy", "other", "calm")]
    await fill(store, busy, 20, still_open=1)
    await fill(store, other, 7)
    await fill(store, calm, 3)
    rounds = BusRetention(store, DatabaseTime(store), BusSettings(deliveries_kept=3))
    with monkeypatch.context() as short:
        short.setattr(upkeep, "_TURNS", 1)
        assert (await rounds.run_once()).discarded == 4  # each queue has its turn
    assert (await rounds.run_once()).discarded == 17
    assert [await kept(store, queue) for queue in (busy, other, calm)] == [[1, 19, 20, 21], [5, 6, 7], [1, 2, 3]]


async def test_a_round_forgets_what_is_old_for_as_long_as_there_is_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_SOME", 2)
    queue = (await add(store)).queue
    await fill(store, queue, 300)
    assert await retain(store, timedelta(days=4)) == 300
    assert await kept(store, queue) == []
