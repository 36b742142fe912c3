"""Queues with many small chunks are compacted: nothing is lost or doubled, whoever cuts meanwhile."""

import asyncio
import itertools

import pytest

from shared.bus import store_queues as queues
from shared.bus.rules.cutting import CutRules, cut
from shared.bus.store_cuts import CursorCut
from shared.bus.upkeep import ChunkUpkeep
from shared.store import Store
from tests.bus.store.made_subscriptions import add
from tests.bus.test_backlogs import bring, cursor_of, uncut
from tests.services.feedback.fanning_out import collected_offsets

pytestmark = pytest.mark.native


async def test_many_small_chunks_become_few(store: Store) -> None:
    deep, other = await add(store, "deep", "a"), await add(store, "other", "a")
    await bring(store, deep, 1_200)
    await bring(store, other, 100)
    before = await collected_offsets(store, deep)
    assert (await ChunkUpkeep(store).run_once()).claimed == 1_195
    assert await collected_offsets(store, deep) == before == list(range(2_400))
    heads = await store.bus_cuts.read_heads([deep.queue], limit=100)
    assert [head.n for head in heads] == [500, 500, 500, 500, 400]
    assert (await uncut(store, deep), await uncut(store, other)) == (2_400, 200)
    assert (await ChunkUpkeep(store).run_once()).claimed == 0


async def test_who_cuts_meanwhile_cuts_everything_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_HEADS", 40)
    deep = await add(store, "deep", "a")
    await bring(store, deep, 600)
    session, upkeep = store.bus_cuts.open_session(), ChunkUpkeep(store)
    found, rules = list[tuple[str, int]](), CutRules(max_events=7, max_bytes=10**6, timeout=deep.timeout, deliveries=2)

    async def cut_all() -> None:
        for _ in itertools.count():
            cursor = await cursor_of(store, deep)
            heads = await store.bus_cuts.read_heads([deep.queue], limit=20)
            if not heads:
                return
            chunks = await store.bus_cuts.read([head.id for head in heads])
            made = cut(deep.queue, chunks, rules, sequence=cursor.sequence, now=await store.now())
            if not made.deliveries:
                continue
            written = await store.bus_cuts.cut([CursorCut(cursor, made)], session)
            if deep.queue in written.written:
                found.extend(place for delivery in made.deliveries for place in delivery.offsets)
            await asyncio.sleep(0)

    async def compact_all() -> None:
        for _ in range(4):
            await upkeep.run_once()

    assert (await upkeep.run_once()).claimed > 0
    await asyncio.gather(cut_all(), compact_all())
    await session.close()
    assert [offset for _, offset in found] == list(range(1_200))
