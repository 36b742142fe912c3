"""Cursors, one for each queue: `shared/domain/bus/cursors.py` explains what they count."""

from collections.abc import Sequence

import msgspec
from pymongo import ASCENDING
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.bus.cursors import Cursor
from shared.domain.bus.health import ReceiverHealth
from shared.domain.instants import EPOCH
from shared.store.documents import BSON_TYPES, Aggregate, Codec, Document, make

CURSORS = "bus_cursors"
_MOST_COUNTED = 1_000

cursor_codec = Codec(Cursor)


class Cursors(Aggregate):
    """The `bus_cursors` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._cursors = database[CURSORS]

    async def setup(self) -> None:
        await make(self._cursors)
        await self._cursors.create_index([("health.idle_since", ASCENDING), ("health.failing_since", ASCENDING)])

    async def add(self, queue: str, session: AsyncClientSession) -> None:
        """Store the cursor of a new queue, in the transaction of its subscription. Raises the driver's errors."""
        await self._cursors.insert_one(cursor_codec.document(Cursor(id=queue)), session=session)

    async def forgive(self, queue: str, session: AsyncClientSession) -> None:
        """Reset the receiver to full health, in a transaction."""
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
        """Start a new receiver with the points of the previous one, in a transaction."""
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
