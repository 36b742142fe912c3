"""Deliveries in the database. Their outcomes are written together with their queue's cursor."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from msgspec import Struct
from pymongo import ASCENDING, DESCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.bus.cursors import Cursor
from shared.domain.bus.deliveries import DeliveryChoice, DeliveryStatus, EventDelivery
from shared.domain.bus.notices import BusNotice
from shared.domain.bus.settling import SettledDelivery
from shared.store.bus.cursors import CURSORS
from shared.store.bus.cuts import DELIVERIES, delivery_codec
from shared.store.bus.dead_letters import LETTERS, letter_codec
from shared.store.bus.moves import PATIENCE, CursorMoved, CursorWriter, CursorWrites, change_all, move_cursors
from shared.store.bus.notices import add_notices
from shared.store.documents import Aggregate, Document, Page, forget_some, make, of_same_place, read_page
from shared.store.transactions import OwnSession, run_transaction

_WITHOUT_EVENTS = {"events": 0, "offsets": 0, "digest": 0}
_WITHOUT_BULK = _WITHOUT_EVENTS | {"attempts": 0}
_BY_SEQUENCE = [("queue", ASCENDING), ("sequence", ASCENDING)]
_BATCH = 500  # of a few kilobytes each
_CHANGED = ("status", "events", "made", "failures", "retry_at", "settled_at", "attempts")


class QueueSettlement(Struct, frozen=True):
    """The outcomes of deliveries of one queue, the cursor before and after them, and the notices about them."""

    before: Cursor
    after: Cursor
    settled: tuple[SettledDelivery, ...]
    notices: tuple[BusNotice, ...] = ()


class BusDeliveries(Aggregate):
    """The `bus_deliveries` collection."""

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
