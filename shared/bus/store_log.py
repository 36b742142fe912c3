"""Events from the log: a flush of the fan-out is one transaction, which writes the log positions, the chunks of the
queues, the queues to wake, the notices, and the count of each topic.

Each partition's position names the flush that moved it last. A flush names those that it follows: if one of them
was replaced, another fan-out has moved that partition, and nothing is written. The transaction that makes a
notice's cause stores the notice; the process that has published it deletes it by its id.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum

import pymongo
from msgspec import Struct
from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.bus.rules.folding import EventChunk
from shared.bus.rules.notices import BusNotice, NoticeWay
from shared.bus.rules.wake_ups import Wake
from shared.bus.store_topics import read_registry
from shared.core.documents import Position
from shared.core.errors import Unavailable
from shared.core.instants import EPOCH
from shared.drivers.mongo.documents import Aggregate, Codec, Document, forget_some, insert_new, make, of_same_place
from shared.drivers.mongo.transactions import OwnSession, end_session, run_transaction

NOTICES = "bus_notices"
_codec = Codec(BusNotice)


class BusNotices(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._notices = database[NOTICES]

    async def setup(self) -> None:
        await make(self._notices)
        await self._notices.create_index([("way", ASCENDING), ("due_at", ASCENDING)])
        await self._notices.create_index([("way", ASCENDING), ("at", ASCENDING)])
        await self._notices.create_index([("queue", ASCENDING)])

    async def take(self, way: NoticeWay, now: datetime, until: datetime) -> BusNotice | None:
        """Take a due notice of this way; no other process takes it before `until`."""
        change = {"$set": {"due_at": until}, "$inc": {"tries": 1}}
        found = await self._notices.find_one_and_update(
            {"way": way.value, "due_at": {"$lte": now}},
            change,
            sort=[("due_at", ASCENDING)],
            return_document=ReturnDocument.AFTER,
        )
        return _codec.maybe(found)

    async def put_off(self, taken: BusNotice, until: datetime) -> None:
        """Tell it later, unless another process has taken it since."""
        await self._notices.update_one({"_id": taken.id, "tries": taken.tries}, {"$set": {"due_at": until}})

    async def note_told(self, taken: BusNotice, until: datetime) -> None:
        """Keep it until `until` as a mark that it was told."""
        told = {"$set": {"is_told": True, "due_at": until}}
        await self._notices.update_one({"_id": taken.id, "at": taken.at}, told)

    async def forget_mails(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` mails about causes before `before`, sent or not; returns the number."""
        return await forget_some(self._notices, {"way": NoticeWay.MAIL.value, "at": {"$lt": before}}, limit)

    async def remove(self, id: str) -> None:
        await self._notices.delete_one({"_id": id})

    async def find_oldest(self) -> BusNotice | None:
        found = await self._notices.find({"way": NoticeWay.EVENT.value}).sort("at", ASCENDING).limit(1).to_list()
        return _codec.value(found[0]) if found else None


async def add_notices(
    database: AsyncDatabase[Document], notices: Sequence[BusNotice], session: AsyncClientSession
) -> None:
    """Add notices, in the transaction that makes their cause. A mail with a stored id, perhaps a mark, is not added
    again. Raises the driver's errors."""
    mails = [notice.id for notice in notices if notice.way is NoticeWay.MAIL]
    found = (
        await database[NOTICES].find({"_id": {"$in": mails}}, {"_id": 1}, session=session).to_list() if mails else []
    )
    known = {document["_id"] for document in found}
    if new := [_codec.document(notice) for notice in notices if notice.id not in known]:
        await database[NOTICES].insert_many(new, session=session)


async def add_loss(database: AsyncDatabase[Document], notice: BusNotice, session: AsyncClientSession) -> None:
    """Add a loss, in its transaction: it joins an untaken notice of its queue and reason, if there is one."""
    untold = {"queue": notice.queue, "kind": notice.kind.value, "reason": notice.reason, "tries": 0}
    change = {
        "$inc": {"events": notice.events},
        "$min": {"first_at": notice.first_at},
        "$max": {"last_at": notice.last_at},
    }
    found = await database[NOTICES].find_one_and_update(untold, change, {"_id": 1}, session=session)
    if found is None:
        await add_notices(database, [notice], session)


CHUNKS = "bus_chunks"
UNWOKEN = "bus_unwoken"
POSITIONS = "bus_positions"
_TRANSACTION_SECONDS, _LOOK_SECONDS = 10.0, 5.0
# The server compares each document with a list of all of them.
_COUNTED_AT_ONCE = 100
_WAKES_IN_ONE = 5_000


class LogPosition(Struct, frozen=True):
    """The reading position of a partition. `flush` moved it there; `order` is the order of that flush's chunks. The
    queues up to `upto` already have the event at the position; empty if none has."""

    position: Position = Position()
    order: int = 0
    flush: str = ""
    upto: str = ""


class PositionMove(Struct, frozen=True):
    partition: str
    stands: LogPosition
    to: Position
    upto: str = ""


class BusFlush(Struct, frozen=True, kw_only=True):
    """The writes of one flush at the time `at`. `version` is the registry's at the fold. `counts` has the number and
    bytes of events of each topic. `notices` report gaps in the log."""

    id: str
    version: int
    at: datetime
    order: int
    moves: Sequence[PositionMove]
    chunks: Sequence[EventChunk] = ()
    wakes: Sequence[Wake] = ()
    counts: Mapping[str, tuple[int, int]] = {}
    notices: Sequence[BusNotice] = ()

    @property
    def reached(self) -> dict[str, LogPosition]:
        """The positions of its partitions after the flush."""
        return {move.partition: LogPosition(move.to, self.order, self.id, move.upto) for move in self.moves}

    @property
    def unwoken(self) -> dict[str, Sequence[Wake]]:
        """The notes of queues to wake, by id: one event may wake more queues than a document can hold."""
        firsts = range(0, len(self.wakes), _WAKES_IN_ONE)
        return {f"{self.id}/{first}": self.wakes[first : first + _WAKES_IN_ONE] for first in firsts}


class FlushResult(Enum):
    STORED = "stored"
    OUTDATED = "outdated"  # the registry has changed: nothing was written
    OVERTAKEN = "overtaken"  # another fan-out has moved a partition: nothing was written


class Unwoken(Struct, frozen=True):
    """Queues that got something from a flush or a retry and may not have been woken. Or the queue whose wake-up
    `follows` a change of its subscription and may not have been updated."""

    id: str
    wakes: Sequence[Wake]
    follows: str = ""


class _NotStored(Exception):
    def __init__(self, result: FlushResult) -> None:
        super().__init__(result)
        self.result = result


class BusFlushes(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._positions = database[POSITIONS]
        self._chunks = database[CHUNKS]
        self._unwoken = database[UNWOKEN]
        self._counts = database["bus_topic_counts"]

    async def setup(self) -> None:
        await make(self._positions)
        await make(self._chunks)
        await self._unwoken.create_index([("at", ASCENDING)])

    def open_session(self) -> OwnSession:
        return OwnSession(self._database)

    async def read_positions(self, partitions: Sequence[str]) -> dict[str, LogPosition]:
        found = await self._positions.find({"_id": {"$in": list(partitions)}}).to_list()
        return {document["_id"]: _position(document) for document in found}

    async def take_over(self, logs: Mapping[str, str], session: OwnSession) -> None:
        """Own these partitions, each with the id of its log, in this session: end the sessions of the previous
        owners."""
        partitions = {"_id": {"$in": list(logs)}}
        found = await self._positions.find(partitions, {"session": 1}).to_list()
        for name in {document["session"] for document in found} - {session.name}:
            await end_session(self._database, name)
        new = logs.keys() - {document["_id"] for document in found}
        begins = {name: LogPosition(Position(0, logs[name])) for name in new}
        await insert_new(self._positions, [_document(name, at, session.name) for name, at in begins.items()])
        await self._positions.update_many(partitions, {"$set": {"session": session.name}})

    async def flush(self, flush: BusFlush, session: OwnSession) -> FlushResult:
        """Write all of the flush, or nothing."""

        async def transact(running: AsyncClientSession) -> None:
            version, _ = await read_registry(self._database, running)
            if version != flush.version:
                raise _NotStored(FlushResult.OUTDATED)
            await self._move(flush, session.name, running)
            await bring_to_queues(
                self._database, flush.chunks, flush.unwoken, order=flush.order, at=flush.at, session=running
            )
            await self._count(flush, running)
            await add_notices(self._database, flush.notices, running)

        try:
            await run_transaction(self._database, transact, session=session, seconds=_TRANSACTION_SECONDS)
        except _NotStored as refused:
            return refused.result
        except Unavailable:
            with pymongo.timeout(_LOOK_SECONDS):
                if await self._is_stored(flush):
                    return FlushResult.STORED
            raise
        return FlushResult.STORED

    async def find_unwoken(self, before: datetime, limit: int) -> list[Unwoken]:
        """Up to `limit` notes before `before` of queues that may not have been woken."""
        cursor = self._unwoken.find({"at": {"$lt": before}}).sort("at", ASCENDING).limit(limit)
        found = await cursor.to_list()
        return [
            Unwoken(document["_id"], [Wake(*wake) for wake in document["wakes"]], document.get("follows", ""))
            for document in found
        ]

    async def forget_unwoken(self, ids: Sequence[str]) -> None:
        await self._unwoken.delete_many({"_id": {"$in": list(ids)}})

    async def _move(self, flush: BusFlush, owner: str, session: AsyncClientSession) -> None:
        ids = [move.partition for move in flush.moves]
        follows = {"$eq": ["$flush", of_same_place(ids, [move.stands.flush for move in flush.moves])]}
        after = of_same_place(ids, [_document(name, reached, owner) for name, reached in flush.reached.items()])
        moved = await self._positions.update_many(
            {"_id": {"$in": ids}}, [{"$replaceWith": {"$cond": [follows, after, "$$ROOT"]}}], session=session
        )
        if moved.modified_count < len(ids):
            raise _NotStored(FlushResult.OVERTAKEN)

    async def _count(self, flush: BusFlush, session: AsyncClientSession) -> None:
        """A topic has one document for each lowest partition of a flush, so that no two fan-outs write to the same
        one."""
        lowest, topics = min(move.partition for move in flush.moves), list(flush.counts)
        for first in range(0, len(topics), _COUNTED_AT_ONCE):
            some = topics[first : first + _COUNTED_AT_ONCE]
            await self._add_counts({f"{topic}/{lowest}": (topic, *flush.counts[topic]) for topic in some}, session)

    async def _add_counts(self, counts: Mapping[str, tuple[str, int, int]], session: AsyncClientSession) -> None:
        ids = list(counts)
        more = {
            "n": {"$add": ["$n", of_same_place(ids, [n for _, n, _ in counts.values()])]},
            "bytes": {"$add": ["$bytes", of_same_place(ids, [size for _, _, size in counts.values()])]},
        }
        counted = await self._counts.update_many({"_id": {"$in": ids}}, [{"$set": more}], session=session)
        if counted.matched_count == len(ids):
            return
        found = await self._counts.find({"_id": {"$in": ids}}, {"_id": 1}, session=session).to_list()
        present = {document["_id"] for document in found}
        await self._counts.insert_many(
            [
                {"_id": id, "topic": topic, "n": n, "bytes": size}
                for id, (topic, n, size) in counts.items()
                if id not in present
            ],
            session=session,
        )

    async def _is_stored(self, flush: BusFlush) -> bool:
        found = await self.read_positions([move.partition for move in flush.moves])
        return all(found.get(partition) == reached for partition, reached in flush.reached.items())


async def bring_to_queues(
    database: AsyncDatabase[Document],
    chunks: Sequence[EventChunk],
    unwoken: Mapping[str, Sequence[Wake]],
    *,
    order: int,
    at: datetime,
    session: AsyncClientSession,
    mark: str = "",
) -> None:
    """Insert chunks, and notes of queues to wake by the ids of the notes, in a transaction. `mark` distinguishes the
    ids of chunks whose events another writer inserts too. Raises the driver's errors."""
    if chunks:
        documents = [chunk_document(chunk, order, number, mark) for number, chunk in enumerate(chunks)]
        await database[CHUNKS].insert_many(documents, session=session)
    if unwoken:
        notes = [unwoken_document(Unwoken(id, wakes), at) for id, wakes in unwoken.items()]
        await database[UNWOKEN].insert_many(notes, session=session)


def chunk_document(chunk: EventChunk, order: int, number: int, mark: str = "") -> Document:
    partition, offset = chunk.offsets[0]
    return {
        "_id": f"{chunk.queue}/{order:013d}/{number:06d}{mark}/{partition}:{offset}",
        "queue": chunk.queue,
        "events": chunk.events,
        "arrivals": chunk.arrivals,
        "offsets": [list(place) for place in chunk.offsets],
    } | sums_of(chunk.events, chunk.arrivals)


def sums_of(events: Sequence[bytes], arrivals: Sequence[int]) -> Document:
    """The sums of a chunk, which are readable without its events."""
    first_at = EPOCH + timedelta(milliseconds=min(arrivals))
    return {"n": len(events), "bytes": sum(map(len, events)), "first_at": first_at}


def unwoken_document(unwoken: Unwoken, at: datetime) -> Document:
    """The note of queues to wake."""
    wakes = [[wake.queue, wake.due, wake.events] for wake in unwoken.wakes]
    return {"_id": unwoken.id, "at": at, "wakes": wakes, "follows": unwoken.follows}


def _document(partition: str, reached: LogPosition, session: str) -> Document:
    position = reached.position
    return {
        "_id": partition,
        "position": position.offset,
        "log": position.log,
        "left": list(position.left),
        "order": reached.order,
        "flush": reached.flush,
        "upto": reached.upto,
        "session": session,
    }


async def read_all_positions(database: AsyncDatabase[Document], session: AsyncClientSession) -> dict[str, Position]:
    """The position of each partition, within this transaction. Raises the driver's errors."""
    found = await database[POSITIONS].find({}, session=session).to_list()
    return {document["_id"]: _position(document).position for document in found}


async def hold_all_positions(database: AsyncDatabase[Document], session: AsyncClientSession) -> dict[str, Position]:
    """The same, with a write to each position, so that this transaction and a running flush exclude each other."""
    await database[POSITIONS].update_many({}, {"$inc": {"held": 1}}, session=session)
    return await read_all_positions(database, session)


def _position(document: Document) -> LogPosition:
    position = Position(document["position"], document["log"], tuple(document["left"]))
    return LogPosition(position, document["order"], document["flush"], document.get("upto", ""))
