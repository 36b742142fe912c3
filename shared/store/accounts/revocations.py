"""Revocations: removed callers, until nothing of theirs can be scheduled any more."""

from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.accounts.callers import Revocation
from shared.store.documents import Aggregate, Codec, Document

_codec = Codec(Revocation)


class Revocations(Aggregate):
    """The `revocations` collection: few documents, found by `_id` or read all at once."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._revocations = database["revocations"]

    async def begin(self, revocation: Revocation) -> None:
        """Store the revocation, in place of an earlier one with its id."""
        await self._revocations.replace_one({"_id": revocation.id}, _codec.document(revocation), upsert=True)

    async def get(self, id: str) -> Revocation | None:
        return _codec.maybe(await self._revocations.find_one({"_id": id}))

    async def all(self) -> list[Revocation]:
        """The revocations that upkeep still has to work on."""
        return [revocation async for revocation in _codec.values(self._revocations.find({}))]

    async def mark_paused(self, revocation: Revocation) -> None:
        """Record that all schedules are paused, unless a later revocation took its place."""
        await self._revocations.update_one(_same(revocation), {"$set": {"paused": True}})

    async def spare(self, namespace: str, schedule_id: str, *, token_id: str = "") -> None:
        """Exempt a schedule from the revocations of the namespace, except that of the token `token_id`: a request with
        that token may have been accepted before."""
        # Revocations are few, and each lasts about an hour.
        query: Document = {"$or": [{"_id": namespace}, {"namespace": namespace}], "subject_id": {"$ne": token_id}}
        await self._revocations.update_many(query, {"$addToSet": {"spared": schedule_id}})

    async def forget(self, revocation: Revocation) -> None:
        """Delete the revocation, unless a later one took its place."""
        await self._revocations.delete_one(_same(revocation))


def _same(revocation: Revocation) -> Document:
    return {"_id": revocation.id, "at": revocation.at}
