"""Outcomes: one small document an attempt, kept for a while."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, DESCENDING, ReplaceOne
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.clock.outcomes import Outcome, OutcomeResult
from shared.store.documents import Codec, Document, forget_some, insert_new, translate_errors

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
        """Insert them. If an attempt was made twice, by a process that died and by another one, an outcome that says
        that the target has it stays; otherwise the last one does. In the order of their ids, as occurrences."""
        ordered = sorted(outcomes, key=lambda outcome: outcome.id)
        taken = await insert_new(self._outcomes, [_codec.document(outcome) for outcome in ordered])
        repeated = [ordered[place] for place in taken]
        if repeated:
            with translate_errors():
                await self._outcomes.bulk_write([_overrule(outcome) for outcome in repeated], ordered=False)

    async def has(self, outcome_id: str) -> bool:
        """Whether this attempt has ended."""
        with translate_errors():
            return await self._outcomes.find_one({"_id": outcome_id}, {"_id": 1}) is not None

    async def latest(self, owner: str, limit: int) -> list[Outcome]:
        """An owner's last outcomes, the newest first."""
        found = self._outcomes.find({"owner": owner}).sort("at", DESCENDING).limit(limit)
        return [outcome async for outcome in _codec.values(found)]

    async def forget(self, *, before: datetime, limit: int) -> int:
        """Forget some that are older; returns how many."""
        return await forget_some(self._outcomes, {"at": {"$lt": before}}, limit)


def _overrule(outcome: Outcome) -> ReplaceOne[Document]:
    """Put it in the place of the one that is there, unless that says that the target has it, or is newer."""
    known = {"_id": outcome.id, "result": {"$ne": OutcomeResult.FIRED.value}}
    older = {} if outcome.result is OutcomeResult.FIRED else {"at": {"$lt": outcome.at}}
    return ReplaceOne(known | older, _codec.document(outcome))
