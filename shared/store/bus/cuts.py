"""Cuts: chunks become deliveries, for many queues in one transaction.

The cursor decides: a compare-and-set moves it from the sequence that was read, in the transaction that inserts the
deliveries and takes their events out of the chunks. So a late worker cuts nothing twice, and no event is left out.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from msgspec import Struct
from pymongo import ASCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.bus.cursors import Cursor
from shared.domain.bus.cutting import ChunkHead, QueueCut, QueuedChunk, ShortenedChunk
from shared.domain.bus.deliveries import EventDelivery
from shared.store.bus.cursors import CURSORS
from shared.store.bus.flushes import CHUNKS
from shared.store.bus.moves import PATIENCE, CursorMoved, CursorWriter, CursorWrites, change_all, move_cursors
from shared.store.documents import Aggregate, Codec, Document, make, of_same_place
from shared.store.transactions import OwnSession, end_session, run_transaction

DELIVERIES = "bus_deliveries"

HEAD = {"queue": 1, "n": 1, "bytes": 1, "first_at": 1}
IN_ORDER = [("queue", ASCENDING), ("_id", ASCENDING)]
_OF_A_HEAD = [("n", ASCENDING), ("bytes", ASCENDING), ("first_at", ASCENDING)]
chunk_codec = Codec(QueuedChunk)
head_codec = Codec(ChunkHead)
delivery_codec = Codec(EventDelivery)


class CursorCut(Struct, frozen=True):
    """A cut, and the cursor that it starts from."""

    cursor: Cursor
    cut: QueueCut

    @property
    def after(self) -> Cursor:
        return self.cursor.after_cut(len(self.cut.deliveries), self.cut.events)


class BusCuts(Aggregate):
    """The `bus_chunks` collection for cutting."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._chunks = database[CHUNKS]
        self._deliveries = database[DELIVERIES]
        self._cursors = database[CURSORS]

    async def setup(self) -> None:
        # The index contains all fields of a head: looks at a deep queue, and its sums, read no events.
        await self._chunks.create_index([*IN_ORDER, *_OF_A_HEAD])
        await make(self._deliveries)
        await make(self._cursors)

    def open_session(self) -> OwnSession:
        return OwnSession(self._database)

    async def end_sessions(self, names: Iterable[str]) -> None:
        """End the sessions of a dead worker, with their open transactions and locks."""
        for name in names:
            await end_session(self._database, name)

    async def read_heads(self, queues: Sequence[str], *, limit: int) -> list[ChunkHead]:
        """The first `limit` chunks of these queues without their events, in the order of the queues' names. If there
        are `limit`, the last queue may be incomplete, and others missing.

        The read is a snapshot. The chunks of one partition are stored in the order of their ids, each flush after the
        one before it. Without a snapshot, a read during two flushes could miss the first and find the second, whose
        events would then be cut first.

        The query names no index: (queue, id) is the only one with its order, and some servers read more of an index if
        they are told which one to take.
        """
        query = {"queue": {"$in": list(queues)}} if len(queues) > 1 else {"queue": queues[0]}
        async with self._database.client.start_session(snapshot=True) as session:
            found = self._chunks.find(query, HEAD, batch_size=limit + 1, session=session)
            heads = await found.sort(IN_ORDER).limit(limit).to_list()
        return [head_codec.value(document) for document in heads]

    async def read(self, ids: Sequence[str]) -> list[QueuedChunk]:
        """The existing chunks with these ids, in the order of their ids."""
        found = await self._chunks.find({"_id": {"$in": list(ids)}}).to_list()
        return sorted((chunk_codec.value(document) for document in found), key=lambda chunk: chunk.id)

    async def cut(self, cuts: Sequence[CursorCut], session: OwnSession, patience: float = PATIENCE) -> CursorWrites:
        """Store cuts of different queues in this session; returns the queues whose cursor and chunks were unchanged. A
        queue that moved, or stays locked for longer than `patience`, is left out and stays as it is."""
        writer = CursorWriter[CursorCut](self._cursors, lambda each: each.cursor, partial(self._cut_together, session))
        return await writer.write(cuts, patience)

    async def _cut_together(self, session: OwnSession, cuts: Sequence[CursorCut], patience: float) -> bool:
        async def transact(running: AsyncClientSession) -> None:
            await move_cursors(self._cursors, [(each.cursor, each.after) for each in cuts], running)
            await self._move_events([each.cut for each in cuts], running)

        try:
            await run_transaction(self._database, transact, session=session, patience=patience)
        except CursorMoved:
            return False
        return True

    async def _move_events(self, cuts: Sequence[QueueCut], session: AsyncClientSession) -> None:
        """Raises `CursorMoved` if a chunk is gone."""
        deliveries = [delivery_codec.document(delivery) for cut in cuts for delivery in cut.deliveries]
        await self._deliveries.insert_many(deliveries, session=session)
        used = [id for cut in cuts for id in cut.used]
        if used:
            deleted = await self._chunks.delete_many({"_id": {"$in": used}}, session=session)
            if deleted.deleted_count < len(used):
                raise CursorMoved
        shortened = [cut.shortened for cut in cuts if cut.shortened is not None]
        await change_all(self._chunks, [chunk.id for chunk in shortened], _shorten(shortened), session)


async def read_first_heads(
    chunks: AsyncCollection[Document], query: Document, limit: int, session: AsyncClientSession
) -> list[ChunkHead]:
    """The first chunks of a query without their events, in a transaction. Raises the driver's errors."""
    cursor = chunks.find(query, HEAD, session=session).sort(IN_ORDER).limit(limit)
    return [head_codec.value(document) for document in await cursor.to_list()]


def _shorten(chunks: Sequence[ShortenedChunk]) -> Document:
    ids = [chunk.id for chunk in chunks]
    fields = ("skip", "n", "bytes", "first_at")
    return {"$set": {name: of_same_place(ids, [getattr(chunk, name) for chunk in chunks]) for name in fields}}
