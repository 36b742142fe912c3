"""Cuts: chunks become deliveries, for many queues in one transaction.

A queue's cursor decides (`shared/bus/rules/deliveries.py` explains what it counts): a compare-and-set moves it from
the sequence that was read, in the transaction that inserts the deliveries and takes their events out of the chunks.
So a late worker cuts nothing twice, and no event is left out.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct
from pymongo import ASCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from shared.bus.rules.cutting import ChunkHead, QueueCut, QueuedChunk, ShortenedChunk
from shared.bus.rules.deliveries import Cursor, EventDelivery
from shared.bus.rules.health import ReceiverHealth
from shared.bus.store_log import CHUNKS
from shared.core.instants import EPOCH
from shared.drivers.mongo.documents import BSON_TYPES, Aggregate, Codec, Document, make, of_same_place, translate_errors
from shared.drivers.mongo.transactions import LastingConflict, OwnSession, end_session, run_transaction

CURSORS = "bus_cursors"
_MOST_COUNTED = 1_000
cursor_codec = Codec(Cursor)


class Cursors(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._cursors = database[CURSORS]

    async def setup(self) -> None:
        await make(self._cursors)
        await self._cursors.create_index([("health.idle_since", ASCENDING), ("health.failing_since", ASCENDING)])

    async def add(self, queue: str, session: AsyncClientSession) -> None:
        await self._cursors.insert_one(cursor_codec.document(Cursor(id=queue)), session=session)

    async def forgive(self, queue: str, session: AsyncClientSession) -> None:
        change = {"$set": {"health": msgspec.to_builtins(ReceiverHealth(), builtin_types=BSON_TYPES)}, "$inc": {"v": 1}}
        await self._cursors.update_one({"_id": queue}, change, session=session)

    async def restart_failing_time(self, queue: str, session: AsyncClientSession) -> None:
        """Restart the time until the receiver is warned and suspended, in a transaction."""
        change = {
            "$set": {"health.failing_since": None, "health.warned_at": None},
            "$unset": {"health.idle": "", "health.idle_since": ""},
            "$inc": {"v": 1},
        }
        await self._cursors.update_one({"_id": queue}, change, session=session)

    async def begin_with_another(self, queue: str, session: AsyncClientSession) -> None:
        fresh = msgspec.to_builtins(ReceiverHealth(), builtin_types=BSON_TYPES)
        change = {"$set": {f"health.{name}": value for name, value in fresh.items() if name != "points"}}
        await self._cursors.update_one({"_id": queue}, change | {"$inc": {"v": 1}}, session=session)

    async def remove(self, queue: str, session: AsyncClientSession) -> None:
        await self._cursors.delete_one({"_id": queue}, session=session)

    async def read(self, queues: Sequence[str]) -> dict[str, Cursor]:
        found = await self._cursors.find({"_id": {"$in": list(queues)}}, batch_size=len(queues) + 1).to_list()
        return {cursor.id: cursor for cursor in map(cursor_codec.value, found)}

    async def count_failing(self) -> int:
        """The number of queues that have work and a failing receiver, up to 1,000."""
        failing = {"health.failing_since": {"$gt": EPOCH}, "health.idle_since": None}
        return await self._cursors.count_documents(failing, limit=_MOST_COUNTED)

    async def page_beyond(self, sequence: int, *, after: str, limit: int) -> list[Cursor]:
        """The next cursors after the queue `after` whose sequence is beyond `sequence`, by queue."""
        query = {"_id": {"$gt": after}, "sequence": {"$gt": sequence}}
        found = self._cursors.find(query, batch_size=limit).sort("_id", ASCENDING).limit(limit)
        return [cursor_codec.value(document) for document in await found.to_list()]


PATIENCE = 0.5
"""Seconds in which a group of writes is retried if another transaction has the same documents. A transaction takes
milliseconds, unless its process has died."""
Write = TypeVar("Write")


class CursorMoved(Exception):
    """Aborts a transaction: a cursor, or what it counts, has changed since it was read."""


async def move_cursors(
    cursors: AsyncCollection[Document], moves: Sequence[tuple[Cursor, Cursor]], session: AsyncClientSession
) -> None:
    ids = [before.id for before, _ in moves]
    as_read = {"$eq": ["$v", of_same_place(ids, [before.v for before, _ in moves])]}
    after = of_same_place(ids, [cursor_codec.document(cursor) for _, cursor in moves])
    await change_all(cursors, ids, {"$replaceWith": {"$cond": [as_read, after, "$$ROOT"]}}, session)


async def change_all(
    collection: AsyncCollection[Document], ids: Sequence[str], change: Mapping[str, object], session: AsyncClientSession
) -> None:
    """Apply one update to all of these documents. Raises `CursorMoved` if it leaves one unchanged."""
    if not ids:
        return
    result = await collection.update_many({"_id": {"$in": list(ids)}}, [change], session=session)
    if result.modified_count < len(ids):
        raise CursorMoved


class CursorWrites(Struct, frozen=True):
    """The cursors for which everything was written, and those that an open transaction locks. For the others nothing
    was written: they have changed since they were read."""

    written: frozenset[str] = frozenset()
    locked: frozenset[str] = frozenset()

    def __or__(self, other: "CursorWrites") -> "CursorWrites":
        return CursorWrites(self.written | other.written, self.locked | other.locked)


class CursorWriter(Generic[Write]):
    """Writes in as few transactions as possible, one write for each cursor. `write_together` makes one transaction of
    several writes, with a patience in seconds, and returns whether all cursors were unchanged. A locked cursor does not
    delay the others."""

    def __init__(
        self,
        cursors: AsyncCollection[Document],
        cursor_of: Callable[[Write], Cursor],
        write_together: Callable[[Sequence[Write], float], Awaitable[bool]],
    ) -> None:
        self._cursors = cursors
        self._cursor_of = cursor_of
        self._write_together = write_together

    async def write(self, writes: Sequence[Write], patience: float) -> CursorWrites:
        """If the writes cannot go together, those whose cursor has moved are left out; if that fails too, each goes
        alone. If a conflict outlasts `patience`, the writes are halved until the conflicting ones are left out."""
        try:
            if await self._write_together(writes, patience):
                return CursorWrites(written=self._ids(writes))
        except LastingConflict:
            return await self._write_halves(writes)
        unmoved = await self._choose_unmoved(writes) if len(writes) > 1 else []
        return await self._write_all_or_each(unmoved) if unmoved else CursorWrites()

    async def _write_halves(self, writes: Sequence[Write]) -> CursorWrites:
        if len(writes) == 1:
            return CursorWrites(locked=self._ids(writes))
        middle = len(writes) // 2
        # Without patience: a conflicting write would delay the others.
        return await self.write(writes[:middle], 0) | await self.write(writes[middle:], 0)

    async def _write_all_or_each(self, writes: Sequence[Write]) -> CursorWrites:
        try:
            if await self._write_together(writes, 0):
                return CursorWrites(written=self._ids(writes))
        except LastingConflict:
            return await self._write_halves(writes)
        outcome = CursorWrites()
        for write in writes:
            outcome |= await self.write([write], 0)
        return outcome

    async def _choose_unmoved(self, writes: Sequence[Write]) -> list[Write]:
        ids = [self._cursor_of(write).id for write in writes]
        with translate_errors():
            found = await self._cursors.find({"_id": {"$in": ids}}, {"v": 1}, batch_size=len(ids) + 1).to_list()
        versions = {document["_id"]: document["v"] for document in found}
        return [write for write in writes if versions.get(self._cursor_of(write).id) == self._cursor_of(write).v]

    def _ids(self, writes: Sequence[Write]) -> frozenset[str]:
        return frozenset(self._cursor_of(write).id for write in writes)


DELIVERIES = "bus_deliveries"
HEAD = {"queue": 1, "n": 1, "bytes": 1, "first_at": 1}
IN_ORDER = [("queue", ASCENDING), ("_id", ASCENDING)]
_OF_A_HEAD = [("n", ASCENDING), ("bytes", ASCENDING), ("first_at", ASCENDING)]
chunk_codec = Codec(QueuedChunk)
head_codec = Codec(ChunkHead)
delivery_codec = Codec(EventDelivery)


class CursorCut(Struct, frozen=True):
    cursor: Cursor
    cut: QueueCut

    @property
    def after(self) -> Cursor:
        return self.cursor.after_cut(len(self.cut.deliveries), self.cut.events)


class BusCuts(Aggregate):
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
