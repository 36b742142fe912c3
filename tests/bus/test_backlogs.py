"""What is beyond the limits of a backlog is lost and told; what is cut meanwhile is not, and nothing is both."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from shared.bus.rules.cutting import BacklogLimits, CutRules, cut
from shared.bus.rules.deliveries import Cursor, DeathReason
from shared.bus.rules.subscriptions import EventSubscription, SubscriptionStatus
from shared.bus.rules.wake_ups import Wake, queue_owner
from shared.bus.store_cuts import CursorCut
from shared.bus.store_log import chunk_document
from shared.bus.store_wake_ups import wake_up_id
from shared.bus.upkeep import BacklogUpkeep
from shared.drivers.mongo.transactions import OwnSession
from shared.runtime.metrics import BUS_EVENTS_LOST
from shared.store import Store
from shared.time import DatabaseTime
from tests.bus.store.made_subscriptions import NOON, add, change, chunk
from tests.bus.test_retention import Later

pytestmark = pytest.mark.native

PLENTY = BacklogLimits(1_000_000, 2**30)
YEARS = 24 * 365 * 100
CUT_AT_ONCE = 2


@pytest.fixture
async def session(store: Store) -> AsyncIterator[OwnSession]:
    opened = store.bus_cuts.open_session()
    yield opened
    await opened.close()


async def bring(store: Store, subscription: EventSubscription, chunks: int) -> None:
    """Chunks of two events each, the first of which have their number as their offset."""
    documents = [
        chunk_document(chunk(subscription.queue, ("0", 2 * number), ("0", 2 * number + 1)), number, 0)
        for number in range(chunks)
    ]
    await store._database["bus_chunks"].insert_many(documents)


async def cursor_of(store: Store, subscription: EventSubscription) -> Cursor:
    return (await store.bus_cursors.read([subscription.queue]))[subscription.queue]


async def uncut(store: Store, subscription: EventSubscription) -> int:
    found = await store.bus_standings.read_uncut([subscription.queue])
    return found[subscription.queue].events if found else 0


async def keep_within(store: Store, limits: BacklogLimits, later: timedelta = timedelta(0)) -> int:
    return (await BacklogUpkeep(store, Later(store, later), limits).run_once()).discarded


async def test_the_oldest_go_and_a_letter_tells_it(store: Store) -> None:
    deep, other = (
        await add(store, "deep", "a", max_age_hours=YEARS),
        await add(store, "other", "a", max_age_hours=YEARS),
    )
    await bring(store, deep, 300)
    await bring(store, other, 20)
    assert await keep_within(store, PLENTY) == 0
    before = BUS_EVENTS_LOST.labels(deep.id, "backlog")._value.get()
    assert await keep_within(store, BacklogLimits(150, 2**30)) == 450
    assert [await uncut(store, each) for each in (deep, other)] == [150, 40]
    assert [(await cursor_of(store, each)).lost for each in (deep, other)] == [450, 0]
    letters = await store.bus_dead_letters.page(deep.namespace, limit=10)
    assert {letter.reason for letter in letters} == {DeathReason.BACKLOG}
    assert sum(letter.count for letter in letters) == 450
    places = sorted(place for letter in letters for _, place in letter.offsets)
    assert (places[0], places[-1], all(letter.events == () for letter in letters)) == (0, 449, True)
    assert all(letter.last_at is not None and letter.last_at > letter.first_at for letter in letters)
    assert BUS_EVENTS_LOST.labels(deep.id, "backlog")._value.get() - before == 450
    assert await keep_within(store, BacklogLimits(150, 2**30)) == 0


@pytest.mark.slow
async def test_two_schedulers_lose_no_more_than_one(store: Store) -> None:
    deep = await add(store, "deep", "a", max_age_hours=YEARS)
    await bring(store, deep, 300)
    lost = await asyncio.gather(*(keep_within(store, BacklogLimits(150, 2**30)) for _ in range(3)))
    assert (sum(lost), await uncut(store, deep), (await cursor_of(store, deep)).lost) == (450, 150, 450)


async def test_bytes_count_too(store: Store) -> None:
    deep = await add(store, "deep", "a", max_age_hours=YEARS)
    await bring(store, deep, 10)
    size = (await store.bus_standings.read_uncut([deep.queue]))[deep.queue].bytes
    assert await keep_within(store, BacklogLimits(10**6, size - 1)) == 2


async def test_what_is_too_old_goes(store: Store) -> None:
    """Events of these tests are of 1970."""
    old, patient = await add(store, "old", "a", max_age_hours=72), await add(store, "patient", "a", max_age_hours=YEARS)
    await bring(store, old, 5)
    await bring(store, patient, 5)
    assert await keep_within(store, PLENTY) == 10
    assert [await uncut(store, each) for each in (old, patient)] == [0, 10]
    (letter,) = await store.bus_dead_letters.page(old.namespace, limit=10)
    assert (letter.reason, letter.key, letter.count) == (DeathReason.AGE, "old", 10)


@pytest.mark.slow
async def test_what_is_cut_beside_it_is_not_lost(store: Store, session: OwnSession) -> None:
    deep = await add(store, "deep", "a", max_age_hours=YEARS)
    await bring(store, deep, 400)
    rules = CutRules(max_events=7, max_bytes=2**20, timeout=timedelta(0), deliveries=CUT_AT_ONCE)
    now = await DatabaseTime(store).now()

    async def cut_some() -> None:
        for _ in range(20):
            cursor = await cursor_of(store, deep)
            heads = await store.bus_cuts.read_heads([deep.queue], limit=10)
            chunks = await store.bus_cuts.read([head.id for head in heads])
            if chunks:
                made = cut(deep.queue, chunks, rules, sequence=cursor.sequence, now=now, more=True)
                await store.bus_cuts.cut([CursorCut(cursor, made)], session)

    async def lose_some() -> None:
        for most in range(700, 0, -50):
            await keep_within(store, BacklogLimits(most, 2**30))

    await asyncio.gather(cut_some(), lose_some())
    cursor = await cursor_of(store, deep)
    deliveries = await store._database["bus_deliveries"].find({"queue": deep.queue}).to_list()
    chunks = await store._database["bus_chunks"].find({"queue": deep.queue}).to_list()
    in_deliveries = [place for delivery in deliveries for _, place in delivery["offsets"]]
    left = [place for each in chunks for _, place in each["offsets"][each.get("skip", 0) :]]
    assert in_deliveries
    assert cursor.lost > 0
    assert len(in_deliveries) == cursor.open == len(set(in_deliveries))
    assert not set(in_deliveries) & set(left)
    assert len(in_deliveries) + len(left) + cursor.lost == 800
    letters = await store.bus_dead_letters.page(deep.namespace, limit=1_000)
    assert sum(letter.count for letter in letters) == cursor.lost


async def wake_up_of(store: Store, subscription: EventSubscription) -> dict[str, Any] | None:
    return await store._database["occurrences"].find_one({"_id": wake_up_id(subscription.queue)})


async def test_a_queue_that_nobody_will_look_at_is_woken(store: Store) -> None:
    keys = ("missing", "asleep", "busy", "paused", "patient")
    missing, asleep, busy, paused, patient = [await add(store, key, max_age_hours=YEARS) for key in keys]
    await change(store, paused, state=SubscriptionStatus.PAUSED)
    await change(store, patient, timeout_ms=YEARS * 3_600_000)
    await store.bus_wake_ups.wake([Wake(busy.queue, NOON, 100)], "b", now=NOON, leased_until=NOON)
    await store._database["occurrences"].delete_one({"_id": wake_up_id(missing.queue)})
    for subscription in (missing, asleep, busy, paused, patient):
        await bring(store, subscription, 3)
    others = [await wake_up_of(store, each) for each in (busy, paused, patient)]
    for _ in range(2):
        await keep_within(store, PLENTY)
        assert [await wake_up_of(store, each) for each in (busy, paused, patient)] == others
        for subscription in (missing, asleep):
            (found,) = await store.occurrences.find_upcoming(queue_owner(subscription.queue), 10)
            (wake_up,) = await store.bus_wake_ups.find_all([subscription.queue])
            assert wake_up is not None
            assert (found.visible_at < NOON, wake_up.waiting, wake_up.full) == (True, 6, subscription.max_events)
