"""Revocations: callers who were taken out, until nothing of theirs can be scheduled any more."""

from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.accounts.callers import Revocation
from shared.store.documents import Codec, Document, translate_errors

_codec = Codec(Revocation)


class Revocations:
    """The `revocations` collection: few documents, found by `_id` or read all at once."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._revocations = database["revocations"]

    async def setup(self) -> None:
        """Nothing to make: everything is found by `_id`."""

    async def begin(self, revocation: Revocation) -> None:
        """Keep this revocation, in the place of an earlier one of the same namespace."""
        with translate_errors():
            await self._revocations.replace_one({"_id": revocation.id}, _codec.document(revocation), upsert=True)

    async def get(self, id: str) -> Revocation | None:
        """The revocation with this id, if there is one."""
        with translate_errors():
            return _codec.maybe(await self._revocations.find_one({"_id": id}))

    async def all(self) -> list[Revocation]:
        """The revocations that upkeep still has to look at."""
        return [revocation async for revocation in _codec.values(self._revocations.find({}))]

    async def mark_paused(self, revocation: Revocation) -> None:
        """Note that all schedules that were there are paused, unless a later one stands in its place."""
        with translate_errors():
            await self._revocations.update_one(_same(revocation), {"$set": {"paused": True}})

    async def spare(self, namespace: str, schedule_id: str, *, token_id: str = "") -> None:
        """Leave this schedule alone from now on, if a caller of the namespace was taken out, and is not the one with
        this token: a request of theirs may have been let in before."""
        # They are few, and each is there for about an hour.
        query: Document = {"$or": [{"_id": namespace}, {"namespace": namespace}], "subject_id": {"$ne": token_id}}
        with translate_errors():
            await self._revocations.update_many(query, {"$addToSet": {"spared": schedule_id}})

    async def forget(self, revocation: Revocation) -> None:
        """Forget it, unless a later one stands in its place: nothing more is to be done."""
        with translate_errors():
            await self._revocations.delete_one(_same(revocation))


def _same(revocation: Revocation) -> Document:
    return {"_id": revocation.id, "at": revocation.at}
