"""Queues of removed subscriptions: a sweep deletes their remains an hour later, because a late flush or worker may
still add to them. A subscription that is made again has another queue."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.store.bus.cursors import CURSORS
from shared.store.bus.cuts import DELIVERIES
from shared.store.bus.flushes import CHUNKS
from shared.store.bus.replays import REPLAYS
from shared.store.documents import Aggregate, Document, forget_some, make

GONE = "bus_gone_queues"


class GoneQueues(Aggregate):
    """The `bus_gone_queues` collection, and the remains of these queues."""

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
