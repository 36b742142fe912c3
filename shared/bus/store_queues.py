"""Queues as a whole: figures of what waits, backlogs beyond their limits, small chunks, and removed subscriptions.

One transaction deletes the lost chunks of a queue, counts them at its cursor and stores a dead letter, so an event
is either lost or cut, never both. One transaction merges small neighbouring chunks and moves the cursor, so that
cuts and compaction exclude each other. A sweep deletes the remains of a removed subscription an hour later, because
a late flush or worker may still add to them; a subscription that is made again has another queue.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.bus.rules.cutting import (
    MANY_CHUNKS,
    Backlog,
    ChunkHead,
    QueuedChunk,
    Surplus,
    choose_small,
    is_worth_it,
    merge_chunks,
)
from shared.bus.rules.deliveries import BusDeadLetter, DeliveryStatus
from shared.bus.rules.notices import notice_of_loss, notice_of_surplus
from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.rules.wake_ups import QUEUE_OWNER
from shared.bus.store_cuts import CURSORS, DELIVERIES, chunk_codec, read_first_heads
from shared.bus.store_deliveries import LETTERS, letter_codec
from shared.bus.store_log import CHUNKS, add_loss, read_all_positions, sums_of
from shared.bus.store_replays import REPLAYS
from shared.core.instants import EPOCH
from shared.drivers.mongo.documents import Aggregate, Document, forget_some, make
from shared.drivers.mongo.outbox import OUTBOX, not_taken
from shared.drivers.mongo.transactions import run_transaction

GONE = "bus_gone_queues"


class GoneQueues(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._gone = database[GONE]
        self._left = [database[CHUNKS], database[DELIVERIES], database[REPLAYS]]
        self._cursors = database[CURSORS]

    async def setup(self) -> None:
        await make(self._gone)
        await self._gone.create_index([("at", ASCENDING)])

    async def add(self, queue: str, at: datetime, session: AsyncClientSession) -> None:
        """Record a removed queue, in the transaction that removes its subscription. Raises the driver's errors."""
        await self._gone.insert_one({"_id": queue, "at": at}, session=session)

    async def find(self, before: datetime, limit: int) -> Sequence[str]:
        cursor = self._gone.find({"at": {"$lt": before}}).sort("at", ASCENDING).limit(limit)
        return [document["_id"] for document in await cursor.to_list()]

    async def sweep(self, queue: str, limit: int) -> int:
        """Delete up to `limit` remains of a queue; after the last one, the queue itself. Returns the number."""
        for collection in self._left:
            if forgotten := await forget_some(collection, {"queue": queue}, limit):
                return forgotten
        await self._cursors.delete_one({"_id": queue})
        await self._gone.delete_one({"_id": queue})
        return 0


_GONE_LEFT_OUT = 1_000  # a server compares each chunk with all of them; beyond, chunks count until they are swept
_OF_THE_BUS = {"$gte": f"{QUEUE_OWNER}/", "$lt": f"{QUEUE_OWNER}0"}  # "0" follows "/"


def sum_of_chunks(query: Document) -> list[Document]:
    summed = {"n": {"$sum": "$n"}, "oldest": {"$min": "$first_at"}, "bytes": {"$sum": "$bytes"}}
    return [{"$match": query}, {"$group": {"_id": "$queue"} | summed}]


def backlog_of(summed: Document) -> Backlog:
    return Backlog(summed["n"], summed["oldest"], summed["bytes"])


class BusStandings(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._chunks = database[CHUNKS]
        self._deliveries = database[DELIVERIES]
        self._gone = database[GONE]
        self._occurrences = database["occurrences"]

    async def read_uncut(self, queues: Sequence[str]) -> dict[str, Backlog]:
        found = await (await self._chunks.aggregate(sum_of_chunks({"queue": {"$in": list(queues)}}))).to_list()
        return {each["_id"]: backlog_of(each) for each in found}

    async def read_open(self, queues: Sequence[str]) -> dict[str, Backlog]:
        pipeline: list[Document] = [
            {"$match": {"queue": {"$in": list(queues)}, "status": DeliveryStatus.OPEN.value}},
            {"$group": {"_id": "$queue", "n": {"$sum": "$count"}, "oldest": {"$min": "$first_at"}}},
        ]
        found = await (await self._deliveries.aggregate(pipeline)).to_list()
        return {document["_id"]: Backlog(document["n"], document["oldest"]) for document in found}

    async def read_all(self) -> Backlog | None:
        """The backlog of all queues and open deliveries; `None` if it is empty. Chunks of removed subscriptions do not
        count: a sweep deletes them later."""
        gone = [each["_id"] for each in await self._gone.find().limit(_GONE_LEFT_OUT).to_list()]
        uncut: list[Document] = [
            {"$match": {"queue": {"$gt": "", "$nin": gone}}},  # so that an index covers the query
            {"$group": {"_id": None, "n": {"$sum": "$n"}, "oldest": {"$min": "$first_at"}}},
        ]
        cut: list[Document] = [
            {"$match": {"status": DeliveryStatus.OPEN.value, "queue": {"$nin": gone}}},
            {"$group": {"_id": None, "n": {"$sum": "$count"}, "oldest": {"$min": "$first_at"}}},
        ]
        # Events that are cut in between are counted twice rather than not at all.
        found = await (await self._chunks.aggregate(uncut)).to_list()
        found += await (await self._deliveries.aggregate(cut)).to_list()
        if not found:
            return None
        return Backlog(sum(each["n"] for each in found), min(each["oldest"] for each in found))

    async def count_due_batches(self, until: datetime) -> int:
        """The number of batches due by `until`, of all queues: for each queue its events by full batches, the last one
        in part."""
        pipeline: list[Document] = [
            {"$match": {"owner": _OF_THE_BUS, "fires_at": {"$lte": until}, "of.waiting": {"$gt": 0}}},
            {"$group": {"_id": None, "n": {"$sum": {"$ceil": {"$divide": ["$of.waiting", "$of.full"]}}}}},
        ]
        found = await (await self._occurrences.aggregate(pipeline)).to_list()
        return int(found[0]["n"]) if found else 0


_CHUNKS = 100  # of one queue at a time
_OWN_EVENTS = 1_000
ChooseSurplus = Callable[[Sequence[ChunkHead], Backlog | None], Surplus | None]
"""Chooses the surplus to lose, from the queue's first chunks and its whole backlog."""


class BusBacklogs(Aggregate):
    """The collections `bus_chunks`, `bus_cursors`, `bus_dead_letters` and `bus_notices`, when events are lost."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._chunks = database[CHUNKS]
        self._cursors = database[CURSORS]
        self._letters = database[LETTERS]
        self._outbox = database[OUTBOX]

    async def lose(self, subscription: EventSubscription, choose: ChooseSurplus, now: datetime) -> Surplus | None:
        """Delete the chunks that `choose` selects within the transaction, and store a letter and a notice about them;
        returns the loss."""

        async def transact(session: AsyncClientSession) -> Surplus | None:
            surplus = choose(*await self._read(subscription.queue, session))
            if surplus is None:
                return None
            these = {"_id": {"$in": [head.id for head in surplus.heads]}}
            found = await self._chunks.find(these, session=session).to_list()
            positions = await read_all_positions(self._database, session)
            logs = {partition: at.log for partition, at in positions.items() if not at.left}
            letter = _letter(logs, [chunk_codec.value(document) for document in found], surplus, subscription, now)
            change = {"$inc": {"v": 1, "lost": letter.count}}
            cursor = await self._cursors.find_one_and_update(
                {"_id": subscription.queue}, change, return_document=ReturnDocument.AFTER, session=session
            )
            if cursor is None:
                return None
            await self._chunks.delete_many(these, session=session)
            letter_id = f"{subscription.queue}.lost.{cursor['v']}"
            await self._letters.insert_one(letter_codec.document(letter) | {"_id": letter_id}, session=session)
            await add_loss(self._database, notice_of_loss(letter, cursor["v"]), session)
            return surplus

        return await run_transaction(self._database, transact)

    async def lose_of_outbox(self, most: int, now: datetime) -> int:
        """Delete some of the oldest of Carillon's own events if more than `most` are unpublished, and store a notice;
        returns the number. Events that a fan-out is publishing stay."""
        # An estimate may be wrong after the server has died, and on other servers at any time.
        surplus = await self._outbox.count_documents({}, limit=most + _OWN_EVENTS) - most
        if surplus <= 0:
            return 0
        found = self._outbox.find(not_taken(now), {"_id": 1}).sort("stored_at", ASCENDING)
        ids = [document["_id"] for document in await found.limit(surplus).to_list()]

        async def transact(session: AsyncClientSession) -> int:
            these = not_taken(now) | {"_id": {"$in": ids}}
            gone = (await self._outbox.delete_many(these, session=session)).deleted_count
            if gone:
                await add_loss(self._database, notice_of_surplus(ids[0], gone, now), session)
            return gone

        return await run_transaction(self._database, transact)

    async def _read(self, queue: str, session: AsyncClientSession) -> tuple[Sequence[ChunkHead], Backlog | None]:
        heads = await read_first_heads(self._chunks, {"queue": queue}, _CHUNKS, session)
        summed = await self._chunks.aggregate(sum_of_chunks({"queue": queue}), session=session)
        return heads, next(map(backlog_of, await summed.to_list()), None)


def _letter(
    logs: Mapping[str, str],
    chunks: Sequence[QueuedChunk],
    surplus: Surplus,
    subscription: EventSubscription,
    now: datetime,
) -> BusDeadLetter:
    """A letter without the events: the first and last arrival, and their places in the log of each partition."""
    offsets = _ends(place for chunk in chunks for place in chunk.offsets[chunk.skip :])
    events = [event for chunk in chunks for event in chunk.events[chunk.skip :]]
    arrivals = [arrival for chunk in chunks for arrival in chunk.arrivals[chunk.skip :]] or [0]
    return BusDeadLetter(
        id="",
        queue=subscription.queue,
        subscription=subscription.id,
        namespace=subscription.namespace,
        key=subscription.key,
        reason=surplus.reason,
        died_at=now,
        sequence=0,
        count=len(events),
        size=sum(map(len, events)),
        first_at=EPOCH + timedelta(milliseconds=min(arrivals)),
        last_at=EPOCH + timedelta(milliseconds=max(arrivals)),
        offsets=offsets,
        logs={partition: logs[partition] for partition, _ in offsets if partition in logs},
    )


def _ends(places: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    by_partition: dict[str, list[int]] = {}
    for partition, offset in places:
        by_partition.setdefault(partition, []).append(offset)
    return tuple(
        (partition, end) for partition, offsets in sorted(by_partition.items()) for end in (min(offsets), max(offsets))
    )


_HEADS = 1_000
_MOST_BYTES = 4 * 2**20


class BusCompaction(Aggregate):
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
