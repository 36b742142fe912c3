"""Queues of removed subscriptions: what is left of them goes an hour later, as a late flush or worker may still add to
them. A subscription that is made again has another queue by then, so they are noted by themselves."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.store.bus.cursors import CURSORS
from shared.store.bus.cuts import DELIVERIES
from shared.store.bus.flushes import CHUNKS
from shared.store.bus.replays import REPLAYS
from shared.store.documents import Document, forget_some, make, translate_errors

GONE = "bus_gone_queues"


class GoneQueues:
    """The `bus_gone_queues` collection, and what is left of these queues. All raise `Unavailable`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._gone = database[GONE]
        self._left = [database[CHUNKS], database[DELIVERIES], database[REPLAYS]]
        self._cursors = database[CURSORS]

    async def setup(self) -> None:
        """Make the index, and with it the collection: a transaction on an older server cannot."""
        await make(self._gone)
        await self._gone.create_index([("at", ASCENDING)])

    async def add(self, queue: str, at: datetime, session: AsyncClientSession) -> None:
        """Note that a queue is gone, in the transaction that removes its subscription. The errors are the driver's:
        they belong to the transaction."""
        await self._gone.insert_one({"_id": queue, "at": at}, session=session)

    async def find(self, before: datetime, limit: int) -> Sequence[str]:
        """Some queues that went before then."""
        with translate_errors():
            cursor = self._gone.find({"at": {"$lt": before}}).sort("at", ASCENDING).limit(limit)
            return [document["_id"] for document in await cursor.to_list()]

    async def sweep(self, queue: str, limit: int) -> int:
        """Forget some of what is left of a queue, and the queue itself once nothing is; returns how many it were."""
        for collection in self._left:
            if forgotten := await forget_some(collection, {"queue": queue}, limit):
                return forgotten
        with translate_errors():
            await self._cursors.delete_one({"_id": queue})
            await self._gone.delete_one({"_id": queue})
        return 0
