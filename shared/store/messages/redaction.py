"""Redaction of the ledger: entries lose their recipients, and count as before.

Each step is one repeatable update of several entries. It raises the `v` of each: the next write of an entry that was
read before is refused, and a new read finds it redacted (`shared.domain.messages.ledger`).
"""

from collections.abc import Collection
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.messages.ledger import batch_prefix
from shared.store.documents import Aggregate, Document, forget_some

_EARLIER = {
    "$map": {"input": "$earlier", "as": "attempt", "in": {"$mergeObjects": ["$$attempt", {"detail": ""}]}},
}
_REDACT: list[Document] = [
    {
        "$set": {
            "redacted_at": {"$ifNull": ["$redacted_at", "$$NOW"]},
            "v": {"$add": [{"$ifNull": ["$v", 0]}, 1]},
            "earlier": {"$cond": [{"$isArray": "$earlier"}, _EARLIER, "$$REMOVE"]},
        }
    },
    {"$unset": ["to", "detail", "personal_since"]},
]


class Redaction(Aggregate):
    """Redacts entries of the `messages` collection.

    Entries of single messages have `personal_since`, from their end until they are redacted, and `ledger_since`, from
    their end on. Entries of jobs have neither: the job has these fields.
    """

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._messages = database["messages"]

    async def setup(self) -> None:
        await self._messages.create_index([("personal_since", ASCENDING)], sparse=True)
        await self._messages.create_index([("ledger_since", ASCENDING)], sparse=True)

    async def redact_batches(self, incarnation: str, first: int, end: int) -> int:
        """Redact the entries of a job's batches from the ordinal `first` up to, not including, `end`; returns the
        number."""
        bounds = {"$gt": batch_prefix(incarnation, first), "$lt": batch_prefix(incarnation, end)}
        return (await self._messages.update_many({"_id": bounds}, _REDACT)).matched_count

    async def redact_recipient(self, app_id: str, addresses: Collection[str], *, limit: int) -> int:
        """Redact up to `limit` of an app's messages to one of these addresses; returns the number. A pending message
        keeps its recipient."""
        query: Document = {"app_id": app_id, "to": {"$in": sorted(addresses)}, "pending": None}
        return await self._redact_some(query, limit)

    async def redact_singles(self, before: datetime, *, limit: int) -> int:
        return await self._redact_some({"personal_since": {"$lt": before}}, limit)

    async def forget_singles(self, before: datetime, *, limit: int) -> int:
        return await forget_some(self._messages, {"ledger_since": {"$lt": before}}, limit)

    async def forget_some_of(self, app_id: str, *, limit: int) -> int:
        return await forget_some(self._messages, {"app_id": app_id}, limit)

    async def _redact_some(self, query: Document, limit: int) -> int:
        found = await self._messages.find(query, {"_id": 1}).limit(limit).to_list()
        if found:
            chosen = {"_id": {"$in": [document["_id"] for document in found]}}
            await self._messages.update_many(chosen, _REDACT)
        return len(found)
