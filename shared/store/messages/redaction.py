"""Redaction of the ledger: entries forget who their recipients are, and count as before.

Each step is one update of so many entries, and may be repeated. It raises the `v` of each: whoever has read an entry
before and writes it afterwards is refused, reads it again, and finds it redacted (`shared.domain.messages.ledger`).
"""

from collections.abc import Collection
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.messages.ledger import batch_prefix
from shared.store.documents import Document, forget_some, translate_errors

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


class Redaction:
    """Redacts entries of the `messages` collection. All raise `Unavailable`.

    Entries of single messages have `personal_since`, from their end on until they are redacted, and `ledger_since`,
    from their end on. Those of jobs have neither: of these the job keeps count.
    """

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._messages = database["messages"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._messages.create_index([("personal_since", ASCENDING)], sparse=True)
        await self._messages.create_index([("ledger_since", ASCENDING)], sparse=True)

    async def redact_batches(self, incarnation: str, first: int, end: int) -> int:
        """Redact the entries of a job's batches, from the first of these ordinals on up to the one before `end`;
        returns how many there are."""
        bounds = {"$gt": batch_prefix(incarnation, first), "$lt": batch_prefix(incarnation, end)}
        with translate_errors():
            return (await self._messages.update_many({"_id": bounds}, _REDACT)).matched_count

    async def redact_recipient(self, app_id: str, addresses: Collection[str], *, limit: int) -> int:
        """Redact some of an app's messages to one of these addresses; returns how many. A message that is still to be
        sent keeps its recipient."""
        query: Document = {"app_id": app_id, "to": {"$in": sorted(addresses)}, "pending": None}
        return await self._redact_some(query, limit)

    async def redact_singles(self, before: datetime, *, limit: int) -> int:
        """Redact some of the single messages that ended before then; returns how many."""
        return await self._redact_some({"personal_since": {"$lt": before}}, limit)

    async def forget_singles(self, before: datetime, *, limit: int) -> int:
        """Forget some of the single messages that ended before then; returns how many."""
        return await forget_some(self._messages, {"ledger_since": {"$lt": before}}, limit)

    async def forget_some_of(self, app_id: str, *, limit: int) -> int:
        """Forget some of an app's messages; returns how many."""
        return await forget_some(self._messages, {"app_id": app_id}, limit)

    async def _redact_some(self, query: Document, limit: int) -> int:
        with translate_errors():
            found = await self._messages.find(query, {"_id": 1}).limit(limit).to_list()
            if found:
                chosen = {"_id": {"$in": [document["_id"] for document in found]}}
                await self._messages.update_many(chosen, _REDACT)
        return len(found)
