"""Outcomes: one small document an attempt, kept for a while."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, DESCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.outcomes import Outcome
from shared.store.documents import Codec, Document, forget_some, insert_new, translated

_codec = Codec(Outcome)


class Outcomes:
    """The `outcomes` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._outcomes = database["outcomes"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._outcomes.create_index([("owner", ASCENDING), ("at", DESCENDING)])
        await self._outcomes.create_index([("at", ASCENDING)])

    async def add(self, outcomes: Sequence[Outcome]) -> None:
        """Insert those that are not there."""
        await insert_new(self._outcomes, [_codec.document(each) for each in outcomes])

    async def has(self, outcome_id: str) -> bool:
        """Whether this attempt has ended."""
        with translated():
            return await self._outcomes.find_one({"_id": outcome_id}, {"_id": 1}) is not None

    async def latest(self, owner: str, limit: int) -> list[Outcome]:
        """An owner's last ones, the newest first."""
        found = self._outcomes.find({"owner": owner}).sort("at", DESCENDING).limit(limit)
        return [outcome async for outcome in _codec.values(found)]

    async def forget(self, *, before: datetime, limit: int) -> int:
        """Forget some that are older; how many."""
        return await forget_some(self._outcomes, {"at": {"$lt": before}}, limit)
