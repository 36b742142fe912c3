"""A flush is stored whole or not at all, whoever else flushes, subscribes or dies at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from pymongo.errors import OperationFailure

from shared.bus import store_log as log
from shared.bus import store_replays as replays
from shared.bus.rules.subscriptions import SubscriptionStatus
from shared.bus.rules.wake_ups import Wake
from shared.bus.store_log import BusFlush, FlushResult, LogPosition, PositionMove
from shared.core.documents import Position
from shared.drivers.mongo.transactions import OwnSession
from shared.store import Store
from tests.bus.store.made_subscriptions import NOON, add, change, chunk, flush_of, version
from tests.waiting import until

pytestmark = pytest.mark.native

START = LogPosition()
P0, P1, P2 = (f"carillon.bus/{number}" for number in range(3))


@pytest.fixture
async def session(store: Store) -> Any:
    opened = store.bus_flushes.open_session()
    await store.bus_flushes.take_over(dict.fromkeys([P0, P1, P2], ""), opened)
    yield opened
    await opened.close()


async def flush(store: Store, session: OwnSession, *args: Any, **options: Any) -> tuple[BusFlush, FlushResult]:
    made = flush_of(await version(store), *args, **options)
    return made, await store.bus_flushes.flush(made, session)


async def chunks_of(store: Store, queue: str) -> list[dict[str, Any]]:
    return await store._database["bus_chunks"].find({"queue": queue}).sort("_id").to_list()


async def test_a_flush_moves_positions_and_brings_chunks_and_counts(store: Store, session: OwnSession) -> None:
    wake = Wake("q.1", NOON, 2)
    made, result = await flush(
        store, session, {P0: (START, 5), P1: (START, 3)}, chunk("q.1", (P0, 4), (P1, 2)), order=7, wakes=[wake],
        counts={"a": (2, 50), "b": (1, 9)},
    )  # fmt: skip
    assert result is FlushResult.STORED
    assert await store.bus_flushes.read_positions([P0, P1, P2]) == made.reached | {P2: START}
    assert await chunks_of(store, "q.1") == [
        {
            "_id": f"q.1/0000000000007/000000/{P0}:4",
            "queue": "q.1",
            "events": [b'{"n":4}', b'{"n":2}'],
            "arrivals": [1004, 1002],
            "offsets": [[P0, 4], [P1, 2]],
            "n": 2,
            "bytes": 14,
            "first_at": datetime(1970, 1, 1, 0, 0, 1, 2000, tzinfo=UTC),
        }
    ]
    assert await store.bus_topics.read_counts(["a", "b", "c"]) == {"a": (2, 50), "b": (1, 9)}
    (unwoken,) = await store.bus_flushes.find_unwoken(NOON + timedelta(seconds=1), 10)
    assert (unwoken.id, unwoken.wakes) == (f"{made.id}/0", [wake])
    assert await store.bus_flushes.find_unwoken(NOON, 10) == []
    await store.bus_flushes.forget_unwoken(list(made.unwoken))
    assert await store.bus_flushes.find_unwoken(NOON + timedelta(seconds=1), 10) == []


async def test_counts_add_up_over_flushes_and_partitions(store: Store, session: OwnSession) -> None:
    first, _ = await flush(store, session, {P0: (START, 5)}, counts={"a": (2, 50)})
    await flush(store, session, {P1: (START, 5)}, counts={"a": (1, 5)})
    await flush(store, session, {P0: (first.reached[P0], 6)}, counts={"a": (1, 5), "b": (1, 1)}, order=2)
    assert await store.bus_topics.read_counts(["a", "b"]) == {"a": (4, 60), "b": (1, 1)}


@pytest.mark.parametrize("moved", [P0, P1])
async def test_one_partition_that_somebody_else_has_moved_discards_all(
    store: Store, session: OwnSession, moved: str
) -> None:
    other, _ = await flush(store, session, {moved: (START, 2)})
    _, result = await flush(
        store, session, {P0: (START, 5), P1: (START, 3)}, chunk("q.1", (P0, 4)), wakes=[Wake("q.1", NOON, 1)],
        counts={"a": (1, 1)}, order=9,
    )  # fmt: skip
    assert result is FlushResult.OVERTAKEN
    assert await store.bus_flushes.read_positions([P0, P1]) == {P0: START, P1: START} | other.reached
    assert await chunks_of(store, "q.1") == []
    assert await store.bus_flushes.find_unwoken(NOON + timedelta(days=1), 10) == []
    assert await store.bus_topics.read_counts(["a"]) == {}


async def test_a_change_of_subscriptions_outdates_what_was_folded_before(store: Store, session: OwnSession) -> None:
    folded = flush_of(await version(store), {P0: (START, 5)}, chunk("q.1", (P0, 4)), wakes=[Wake("q.1", NOON, 1)])
    await add(store, "new", "a")
    assert await store.bus_flushes.flush(folded, session) is FlushResult.OUTDATED
    assert await store.bus_flushes.read_positions([P0]) == {P0: START}
    assert await chunks_of(store, "q.1") == []


@pytest.mark.parametrize("first", ["flush", "suspension"])
async def test_of_a_flush_and_a_suspension_at_the_same_time_one_is_refused_and_begins_anew(
    store: Store, session: OwnSession, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Else the flush brings events that the replay of the suspension brings once more."""
    subscription = await add(store, "k", "a")
    made = flush_of(await version(store), {P0: (START, 5)}, chunk(subscription.queue, (P0, 4)))
    refused, tasks = asyncio.Event(), dict[str, asyncio.Task[Any]]()

    def begin(name: str) -> None:
        work: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "flush": partial(store.bus_flushes.flush, made, session),
            "suspension": partial(change, store, subscription, state=SubscriptionStatus.SUSPENDED),
        }
        if name not in tasks:
            tasks[name] = asyncio.create_task(work[name]())

    def note(name: str, other: str, write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The same write; the other transaction runs behind it as far as it can."""

        async def noted(*args: Any) -> Any:
            try:
                written = await write(*args)
            except OperationFailure:
                refused.set()
                raise
            begin(other)
            if name == first:
                await until(lambda: refused.is_set() or tasks[other].done())
            return written

        return noted

    monkeypatch.setattr(store.bus_flushes, "_move", note("flush", "suspension", store.bus_flushes._move))
    monkeypatch.setattr(replays, "hold_all_positions", note("suspension", "flush", log.hold_all_positions))
    begin(first)
    await until(lambda: len(tasks) == 2)
    suspended, result = await tasks["suspension"], await tasks["flush"]
    (replay,) = await store.bus_replays.page(subscription.queue, limit=2)
    begins = {span.partition: span.begins for span in replay.spans}
    assert (refused.is_set(), suspended.state) == (True, SubscriptionStatus.SUSPENDED)
    assert (result, begins[P0], len(await chunks_of(store, subscription.queue))) == {
        "flush": (FlushResult.STORED, 5, 1),
        "suspension": (FlushResult.OUTDATED, 0, 0),
    }[first]


async def test_of_two_that_flush_the_same_one_wins(store: Store, session: OwnSession, ready_database: str) -> None:
    other = Store.open(ready_database)
    others = other.bus_flushes.open_session()
    stands, known = START, await version(store)
    for number in range(1, 21):
        log = [
            flush_of(known, {P0: (stands, number)}, chunk(f"q.{who}", (P0, number)), order=number) for who in range(2)
        ]
        results = await asyncio.gather(
            store.bus_flushes.flush(log[0], session), other.bus_flushes.flush(log[1], others)
        )
        assert sorted(result.value for result in results) == ["overtaken", "stored"]
        stands = log[results.index(FlushResult.STORED)].reached[P0]
        assert await store.bus_flushes.read_positions([P0]) == {P0: stands}
    assert len(await chunks_of(store, "q.0")) + len(await chunks_of(store, "q.1")) == 20
    await others.close()
    await other.close()


async def test_flushes_of_different_partitions_do_not_disturb_each_other(store: Store, ready_database: str) -> None:
    async def go_on(partition: str) -> None:
        own = Store.open(ready_database)
        session = own.bus_flushes.open_session()
        await own.bus_flushes.take_over({partition: ""}, session)
        stands, known = START, await version(own)
        for number in range(1, 16):
            made = flush_of(
                known, {partition: (stands, number)}, chunk("q.1", (partition, number)), counts={"a": (1, 1)}
            )
            assert await own.bus_flushes.flush(made, session) is FlushResult.STORED
            stands = made.reached[partition]
        await session.close()
        await own.close()

    await asyncio.gather(go_on(P0), go_on(P1), go_on(P2))
    assert len(await chunks_of(store, "q.1")) == 45
    assert await store.bus_topics.read_counts(["a"]) == {"a": (45, 45)}


async def test_who_takes_a_partition_over_ends_the_transaction_of_a_dead_owner(
    store: Store, session: OwnSession, ready_database: str
) -> None:
    """A dead one is one whose transaction is open, and who does nothing more."""
    dead = Store.open(ready_database)
    left = dead.bus_flushes.open_session()
    await dead.bus_flushes.take_over({P0: ""}, left)
    await left.session.start_transaction()
    positions = dead._database["bus_positions"]
    await positions.update_one({"_id": P0}, {"$set": {"flush": "of a dead one"}}, session=left.session)

    heir = store.bus_flushes.open_session()
    async with asyncio.timeout(30):  # the server itself ends it after a minute
        await store.bus_flushes.take_over({P0: ""}, heir)
        _, result = await flush(store, heir, {P0: (START, 5)})
    assert result is FlushResult.STORED
    await left.close()
    await heir.close()
    await dead.close()


async def test_one_who_was_taken_over_and_lives_stores_nothing_more(store: Store, session: OwnSession) -> None:
    heir = store.bus_flushes.open_session()
    await store.bus_flushes.take_over({P0: ""}, heir)
    made, result = await flush(store, heir, {P0: (START, 5)})
    assert result is FlushResult.STORED
    _, late = await flush(store, session, {P0: (START, 9)}, chunk("q.1", (P0, 4)))
    assert late is FlushResult.OVERTAKEN
    assert await store.bus_flushes.read_positions([P0]) == made.reached
    await heir.close()


async def test_positions_bear_their_log_and_those_that_were_left(store: Store, session: OwnSession) -> None:
    to = Position(5, "new", ("old", "older"))
    moved = replace(flush_of(await version(store), {}), moves=[PositionMove(P0, START, to)], order=3)
    assert await store.bus_flushes.flush(moved, session) is FlushResult.STORED
    assert await store.bus_flushes.read_positions([P0]) == {P0: LogPosition(to, 3, moved.id)}


async def test_chunks_of_a_queue_lie_in_the_order_of_the_log(store: Store, session: OwnSession) -> None:
    first, _ = await flush(
        store, session, {P0: (START, 700)}, *(chunk("q.1", (P0, offset)) for offset in range(11)), order=99
    )
    await flush(store, session, {P0: (first.reached[P0], 800)}, chunk("q.1", (P0, 700)), order=100)
    offsets = [found["offsets"][0][1] for found in await chunks_of(store, "q.1")]
    assert offsets == [*range(11), 700]
