"""Minutes: a document for each minute with activity."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.console.minutes import MOST, Counts, MinuteCounts, minute_id
from shared.store.documents import Aggregate, Codec, Document, forget_some, make

_codec = Codec(MinuteCounts)


class Minutes(Aggregate):
    """The `minutes` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._minutes = database["minutes"]

    async def setup(self) -> None:
        await make(self._minutes)

    async def add(self, at: datetime, counts: Counts) -> None:
        await self._minutes.update_one({"_id": minute_id(at)}, {"$inc": dict(_paths(counts))}, upsert=True)

    async def since(self, at: datetime) -> Sequence[MinuteCounts]:
        found = self._minutes.find({"_id": {"$gte": minute_id(at)}}).sort("_id", ASCENDING).limit(MOST)
        return [_codec.value(document) async for document in found]

    async def forget(self, *, before: datetime, limit: int) -> int:
        return await forget_some(self._minutes, {"_id": {"$lt": minute_id(before)}}, limit)


def _paths(counts: Counts) -> list[tuple[str, Any]]:
    nested = [
        (f"{field}.{key}", count) for field, value in counts.items() if not isinstance(value, int)
        for key, count in value.items()
    ]  # fmt: skip
    return [*((field, value) for field, value in counts.items() if isinstance(value, int)), *nested]
