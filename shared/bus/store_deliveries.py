"""Deliveries, and the dead letters that become of refused ones until a user retries or discards them.

The outcomes of deliveries are written together with their queue's cursor.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from msgspec import Struct
from pymongo import ASCENDING, DESCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.bus.rules.deliveries import (
    MOST_OPEN,
    REOPENABLE,
    BusDeadLetter,
    BusLetterPlace,
    Cursor,
    DeliveryChoice,
    DeliveryStatus,
    EventDelivery,
    SettledDelivery,
    reopen,
)
from shared.bus.rules.notices import BusNotice
from shared.bus.rules.wake_ups import Wake
from shared.bus.store_cuts import (
    CURSORS,
    DELIVERIES,
    PATIENCE,
    CursorMoved,
    CursorWriter,
    CursorWrites,
    change_all,
    cursor_codec,
    delivery_codec,
    move_cursors,
)
from shared.bus.store_log import UNWOKEN, Unwoken, add_notices, unwoken_document
from shared.core.errors import Unavailable
from shared.drivers.mongo.documents import (
    Aggregate,
    Codec,
    Document,
    Page,
    forget_some,
    make,
    of_same_place,
    read_newest,
    read_page,
)
from shared.drivers.mongo.transactions import OwnSession, run_transaction

LETTERS = "bus_dead_letters"
_BATCH = 500
_TRIES = 10
_LETTER_WITHOUT_EVENTS = {"events": 0}
letter_codec = Codec(BusDeadLetter)


class LetterRetry(Struct, frozen=True):
    """The outcome of a retry: the queue to wake if the delivery is open again. Without one, the letter or its queue is
    gone, or the queue has too many open deliveries (`is_full`)."""

    unwoken: Unwoken | None = None
    is_full: bool = False


class BusDeadLetters(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._letters = database[LETTERS]
        self._deliveries = database[DELIVERIES]
        self._cursors = database[CURSORS]
        self._unwoken = database[UNWOKEN]

    async def setup(self) -> None:
        for leading in ((), ("namespace",), ("namespace", "key")):
            await self._letters.create_index([(field, ASCENDING) for field in (*leading, "died_at", "_id")])

    async def get(self, namespace: str, letter_id: str) -> BusDeadLetter | None:
        return letter_codec.maybe(await self._letters.find_one({"_id": letter_id, "namespace": namespace}))

    async def estimate_count(self) -> int:
        return await self._letters.estimated_document_count()

    async def page(
        self,
        namespace: str,
        *,
        key: str = "",
        before: BusLetterPlace | None = None,
        limit: int,
        losses: bool = True,
    ) -> Page[BusDeadLetter]:
        """A namespace's dead letters behind the place `before`, the newest first, without their events; only those of
        `key` if it is given; without `losses`, only deliveries."""
        query: Document = {"namespace": namespace} | ({"key": key} if key else {})
        query |= {} if losses else {"sequence": {"$gt": 0}}
        place = None if before is None else (before.died_at, before.id)
        return await read_newest(self._read, query, "died_at", place, limit)

    async def retry(self, letter: BusDeadLetter, now: datetime) -> LetterRetry:
        """Open the delivery of this letter again: the letter goes, the queue's cursor counts the delivery, and a note
        names the queue to wake."""

        async def transact(session: AsyncClientSession) -> LetterRetry:
            found = await self._cursors.find_one({"_id": letter.queue}, session=session)
            if found is None:
                return LetterRetry()
            cursor = cursor_codec.value(found)
            if cursor.open_deliveries >= MOST_OPEN:
                return LetterRetry(is_full=True)
            deleted = await self._letters.delete_one({"_id": letter.id, "died_at": letter.died_at}, session=session)
            if not deleted.deleted_count:
                return LetterRetry()
            after, delivery = reopen(cursor, letter, now)
            await move_cursors(self._cursors, [(cursor, after)], session)
            document = delivery_codec.document(delivery)  # it may have been deleted before its letter
            dead = {"_id": delivery.id, "status": {"$in": [status.value for status in REOPENABLE]}}
            await self._deliveries.replace_one(dead, document, upsert=True, session=session)
            unwoken = Unwoken(f"{letter.id}/retry/{after.v}", [Wake(letter.queue, now, letter.count)])
            await self._unwoken.insert_one(unwoken_document(unwoken, now), session=session)
            return LetterRetry(unwoken)

        for _ in range(_TRIES):
            with suppress(CursorMoved):
                return await run_transaction(self._database, transact)
        raise Unavailable(f"the queue {letter.queue} moves all the time")

    async def remove(self, letter: BusDeadLetter) -> bool:
        removed = await self._letters.delete_one({"_id": letter.id, "died_at": letter.died_at})
        return removed.deleted_count > 0

    async def forget(self, before: datetime, limit: int) -> int:
        return await forget_some(self._letters, {"died_at": {"$lt": before}}, limit)

    async def _read(self, query: Document, limit: int) -> Page[BusDeadLetter]:
        return await read_page(
            self._letters, query, letter_codec.value, order=("died_at", "_id"), direction=DESCENDING, limit=limit,
            without=_LETTER_WITHOUT_EVENTS, batch=_BATCH,
        )  # fmt: skip


_WITHOUT_EVENTS = {"events": 0, "offsets": 0, "digest": 0}
_WITHOUT_BULK = _WITHOUT_EVENTS | {"attempts": 0}
_BY_SEQUENCE = [("queue", ASCENDING), ("sequence", ASCENDING)]
_CHANGED = ("status", "events", "made", "failures", "retry_at", "settled_at", "attempts")


class QueueSettlement(Struct, frozen=True):
    before: Cursor
    after: Cursor
    settled: tuple[SettledDelivery, ...]
    notices: tuple[BusNotice, ...] = ()


class BusDeliveries(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._database = database
        self._deliveries = database[DELIVERIES]
        self._letters = database[LETTERS]
        self._cursors = database[CURSORS]

    async def setup(self) -> None:
        await self._deliveries.create_index([("queue", ASCENDING), ("status", ASCENDING), ("retry_at", ASCENDING)])
        await self._deliveries.create_index(_BY_SEQUENCE)
        await self._deliveries.create_index([("status", ASCENDING), ("first_at", ASCENDING)])
        await self._deliveries.create_index([("settled_at", ASCENDING)])
        await make(self._cursors)

    async def read_open(self, queues: Sequence[str]) -> list[EventDelivery]:
        """The open deliveries of these queues, without events and attempts, in the order in which they are due."""
        found = await self._deliveries.find(_open_of(queues), _WITHOUT_BULK, batch_size=10_000).to_list()
        return sorted(map(delivery_codec.value, found), key=_turn)

    async def read_first_open(self, queues: Sequence[str]) -> list[EventDelivery]:
        """The open delivery of each queue that is due first, without events and attempts."""
        pipeline: list[Document] = [
            {"$match": _open_of(queues)},
            {"$project": _WITHOUT_BULK},
            {"$sort": {"queue": ASCENDING, "retry_at": ASCENDING, "sequence": ASCENDING}},
            {"$group": {"_id": "$queue", "first": {"$first": "$$ROOT"}}},
        ]
        found = await (await self._deliveries.aggregate(pipeline, batchSize=len(queues) + 1)).to_list()
        return [delivery_codec.value(document["first"]) for document in found]

    async def with_ids(self, ids: Sequence[str]) -> dict[str, EventDelivery]:
        found = await self._deliveries.find({"_id": {"$in": list(ids)}}).to_list()
        return {delivery.id: delivery for delivery in map(delivery_codec.value, found)}

    async def settle(
        self, settlements: Sequence[QueueSettlement], session: OwnSession, patience: float = PATIENCE
    ) -> CursorWrites:
        """Write settlements of different queues in this session; returns the queues whose cursor and deliveries were
        unchanged. A queue that moved, or stays locked for longer than `patience`, is left out and stays as it is."""
        settle_together = partial(self._settle_together, session)
        writer = CursorWriter[QueueSettlement](self._cursors, lambda each: each.before, settle_together)
        return await writer.write(settlements, patience)

    async def forget_settled(self, before: datetime, limit: int) -> int:
        return await forget_some(self._deliveries, {"settled_at": {"$lt": before}}, limit)

    async def forget_below(self, queue: str, sequence: int, limit: int) -> int:
        """Delete up to `limit` settled deliveries of a queue up to `sequence`; returns the number."""
        query = {"queue": queue, "sequence": {"$lte": sequence}, "status": {"$ne": DeliveryStatus.OPEN.value}}
        some = self._deliveries.find(query, {"_id": 1}).sort(_BY_SEQUENCE).hint(_BY_SEQUENCE).limit(limit)
        ids = [found["_id"] for found in await some.to_list()]
        if not ids:
            return 0
        # A retry of a dead letter may have opened one again since.
        settled = {"_id": {"$in": ids}, "status": {"$ne": DeliveryStatus.OPEN.value}}
        return (await self._deliveries.delete_many(settled)).deleted_count

    async def page(
        self, queue: str, choice: DeliveryChoice, *, before: int | None = None, limit: int
    ) -> Page[EventDelivery]:
        """The deliveries of a queue below the sequence `before`, the newest first, without their events."""
        bounds = {"$gt": choice.after} | ({} if before is None else {"$lt": before})
        query: Document = {"queue": queue, "sequence": bounds}
        if choice.status is not None:
            query["status"] = choice.status.value
        if choice.cut_from is not None:
            query["cut_at"] = {"$gte": choice.cut_from}
        return await read_page(
            self._deliveries, query, delivery_codec.value, order=("sequence",), direction=DESCENDING, limit=limit,
            without=_WITHOUT_EVENTS, batch=_BATCH, hint=_BY_SEQUENCE,
        )  # fmt: skip

    async def find(self, id: str, *, events: bool) -> EventDelivery | None:
        return delivery_codec.maybe(await self._deliveries.find_one({"_id": id}, None if events else _WITHOUT_EVENTS))

    async def _settle_together(
        self, session: OwnSession, settlements: Sequence[QueueSettlement], patience: float
    ) -> bool:
        async def transact(running: AsyncClientSession) -> None:
            await move_cursors(self._cursors, [(each.before, each.after) for each in settlements], running)
            await self._write([settled for each in settlements for settled in each.settled], running)
            await add_notices(self._database, [notice for each in settlements for notice in each.notices], running)

        try:
            await run_transaction(self._database, transact, session=session, patience=patience)
        except CursorMoved:
            return False
        return True

    async def _write(self, settled: Sequence[SettledDelivery], session: AsyncClientSession) -> None:
        ids = [each.after.id for each in settled]
        after = [delivery_codec.document(each.after) for each in settled]
        fields = {name: of_same_place(ids, [document[name] for document in after]) for name in _CHANGED}
        is_open = {"$eq": ["$status", DeliveryStatus.OPEN.value]}
        # An open delivery keeps its events, which the settling worker may not have read.
        still_open = {"$eq": [fields["status"], DeliveryStatus.OPEN.value]}
        fields["events"] = {"$cond": [still_open, "$events", []]}
        change = {"$set": {name: {"$cond": [is_open, value, f"${name}"]} for name, value in fields.items()}}
        await change_all(self._deliveries, ids, change, session)
        letters = [letter_codec.document(each.letter) for each in settled if each.letter is not None]
        if letters:
            await self._letters.insert_many(letters, session=session)


def _open_of(queues: Sequence[str]) -> Document:
    return {"queue": {"$in": list(queues)}, "status": DeliveryStatus.OPEN.value}


def _turn(delivery: EventDelivery) -> tuple[datetime, int]:
    return delivery.retry_at or delivery.cut_at, delivery.sequence
