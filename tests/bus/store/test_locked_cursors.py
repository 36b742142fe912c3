"""A cursor that somebody's open transaction keeps: it holds up nobody else's cuts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shared.bus.rules.cutting import CutRules, cut
from shared.bus.rules.deliveries import Cursor
from shared.bus.store_cuts import CursorCut, cursor_codec
from shared.bus.store_log import chunk_document
from shared.drivers.mongo.transactions import OwnSession, run_transaction
from shared.store import Store
from tests.bus.store.made_subscriptions import NOON, chunk

QUEUES = [f"{number:032x}.g" for number in range(200)]
LOCKED = QUEUES[77]

pytestmark = pytest.mark.native


@asynccontextmanager
async def locked(store: Store, queue: str) -> AsyncIterator[None]:
    """Another one's transaction has touched the cursor of this queue, and is open."""
    other = OwnSession(store._database)
    await other.session.start_transaction()
    await store.bus_cursors.forgive(queue, other.session)
    yield
    await other.close()


async def make_cuts(store: Store, queues: Sequence[str]) -> list[CursorCut]:
    """One event waits in each of these queues, and is cut."""
    cursors = [Cursor(id=queue) for queue in queues]
    await store._database["bus_cursors"].insert_many([cursor_codec.document(cursor) for cursor in cursors])
    documents = [chunk_document(chunk(queue, ("0", number)), 1, 0) for number, queue in enumerate(queues)]
    await store._database["bus_chunks"].insert_many(documents)
    rules = CutRules(max_events=1, max_bytes=2**20, timeout=NOON - NOON, deliveries=1)
    chunks = {found.queue: found for found in await store.bus_cuts.read([document["_id"] for document in documents])}
    return [CursorCut(cursor, cut(cursor.id, [chunks[cursor.id]], rules, sequence=0, now=NOON)) for cursor in cursors]


@pytest.fixture
async def session(store: Store) -> AsyncIterator[OwnSession]:
    opened = store.bus_cuts.open_session()
    yield opened
    await opened.close()


async def test_a_locked_cursor_holds_up_no_other(
    store: Store, session: OwnSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def transact(database: Any, work: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
        async def count(session: Any) -> Any:
            nonlocal tries
            tries += 1
            return await work(session)

        return await run_transaction(database, count, **options)

    monkeypatch.setattr("shared.bus.store_cuts.run_transaction", transact)
    cuts = await make_cuts(store, QUEUES)
    async with locked(store, LOCKED), asyncio.timeout(50):
        outcome = await store.bus_cuts.cut(cuts, session)
        assert outcome.written == {*QUEUES} - {LOCKED}
        assert outcome.locked == {LOCKED}
        tries = 0
        alone = await store.bus_cuts.cut([one for one in cuts if one.cursor.id == LOCKED], session, patience=0)
        assert not alone.written
        assert alone.locked == {LOCKED}
        assert tries == 1
    alone = await store.bus_cuts.cut([one for one in cuts if one.cursor.id == LOCKED], session)
    assert alone.written == {LOCKED}
    assert await store._database["bus_deliveries"].count_documents({}) == len(QUEUES)


async def test_who_waits_for_a_moment_is_not_left_out(store: Store, session: OwnSession) -> None:
    cuts = await make_cuts(store, QUEUES[:3])
    async with locked(store, QUEUES[0]):
        cutting = asyncio.create_task(store.bus_cuts.cut(cuts, session, patience=30))
        await asyncio.sleep(0.2)
    assert (await cutting).written == {*QUEUES[:3]}
