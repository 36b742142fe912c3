"""Outcomes: one small document for each attempt, deleted after a while."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, DESCENDING, ReplaceOne
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.clock.outcomes import Outcome, OutcomeResult
from shared.store.documents import Aggregate, Codec, Document, forget_some, insert_new

_codec = Codec(Outcome)


class Outcomes(Aggregate):
    """The `outcomes` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._outcomes = database["outcomes"]

    async def setup(self) -> None:
        await self._outcomes.create_index([("owner", ASCENDING), ("at", DESCENDING)])
        await self._outcomes.create_index([("at", ASCENDING)])

    async def add(self, outcomes: Sequence[Outcome]) -> None:
        """Insert outcomes, in the order of their ids, as occurrences. If an attempt was made twice, by a process that
        died and another one, a successful outcome stays; otherwise the last one does."""
        ordered = sorted(outcomes, key=lambda outcome: outcome.id)
        taken = await insert_new(self._outcomes, [_codec.document(outcome) for outcome in ordered])
        repeated = [ordered[place] for place in taken]
        if repeated:
            await self._outcomes.bulk_write([_overrule(outcome) for outcome in repeated], ordered=False)

    async def has(self, outcome_id: str) -> bool:
        return await self._outcomes.find_one({"_id": outcome_id}, {"_id": 1}) is not None

    async def latest(self, owner: str, limit: int) -> list[Outcome]:
        found = self._outcomes.find({"owner": owner}).sort("at", DESCENDING).limit(limit)
        return [outcome async for outcome in _codec.values(found)]

    async def forget(self, *, before: datetime, limit: int) -> int:
        return await forget_some(self._outcomes, {"at": {"$lt": before}}, limit)


def _overrule(outcome: Outcome) -> ReplaceOne[Document]:
    """Replace the stored outcome, unless that is a success or newer."""
    known = {"_id": outcome.id, "result": {"$ne": OutcomeResult.FIRED.value}}
    older = {} if outcome.result is OutcomeResult.FIRED else {"at": {"$lt": outcome.at}}
    return ReplaceOne(known | older, _codec.document(outcome))
