"""Compaction: one transaction merges small neighbouring chunks of a queue and moves its cursor, so that cuts and
compaction exclude each other."""

from collections.abc import Sequence

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.bus.compaction import MANY_CHUNKS, choose_small, is_worth_it, merge_chunks
from shared.domain.bus.cutting import ChunkHead
from shared.store.bus.cursors import CURSORS
from shared.store.bus.cuts import chunk_codec, read_first_heads
from shared.store.bus.flushes import CHUNKS, sums_of
from shared.store.documents import Aggregate, Document
from shared.store.transactions import run_transaction

_HEADS = 1_000
_MOST_BYTES = 4 * 2**20


class BusCompaction(Aggregate):
    """The `bus_chunks` of queues that have many."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._chunks = database[CHUNKS]
        self._cursors = database[CURSORS]

    async def find_queues(self, limit: int) -> Sequence[str]:
        """Up to `limit` queues with many small chunks, those with most chunks first."""
        pipeline: list[Document] = [
            {"$match": {"queue": {"$gt": ""}}},  # so that an index covers the query
            {
                "$group": {
                    "_id": "$queue",
                    "chunks": {"$sum": 1},
                    "n": {"$sum": "$n"},
                    "bytes": {"$sum": "$bytes"},
                }
            },
            {"$match": {"chunks": {"$gte": MANY_CHUNKS}}},
            {"$sort": {"chunks": -1}},
        ]
        found = await (await self._chunks.aggregate(pipeline)).to_list()
        return [each["_id"] for each in found if is_worth_it(each["chunks"], each["n"], each["bytes"])][:limit]

    async def compact(self, queue: str, after: str = "") -> tuple[int, str]:
        """Compact some small chunks after the id `after`; returns the decrease in chunks, and the id to continue after:
        empty at the end."""

        async def transact(session: AsyncClientSession) -> tuple[int, str]:
            query: Document = {"queue": queue} | ({"_id": {"$gt": after}} if after else {})
            heads = await read_first_heads(self._chunks, query, _HEADS, session)
            chosen = choose_small(heads, _MOST_BYTES)
            if not chosen:
                return 0, heads[-1].id if len(heads) == _HEADS else ""
            return await self._merge(queue, chosen, session), chosen[-1].id

        return await run_transaction(self._database, transact)

    async def _merge(self, queue: str, heads: Sequence[ChunkHead], session: AsyncClientSession) -> int:
        these = {"_id": {"$in": [head.id for head in heads]}}
        found = await self._chunks.find(these, session=session).to_list()
        merged = merge_chunks(sorted(map(chunk_codec.value, found), key=lambda chunk: chunk.id))
        if len(merged) == len(found):
            return 0
        moved = await self._cursors.update_one({"_id": queue}, {"$inc": {"v": 1}}, session=session)
        if not moved.matched_count:
            return 0
        await self._chunks.delete_many(these, session=session)
        await self._chunks.insert_many(
            [chunk_codec.document(chunk) | sums_of(chunk.events, chunk.arrivals) for chunk in merged], session=session
        )
        return len(found) - len(merged)
