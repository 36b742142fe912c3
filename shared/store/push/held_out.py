"""The users that control groups hold out, batch by batch, until the job's file of them is written.

A batch may be tried more than once, and its table may change in between. So each take has a document of its own,
written before the lane takes the batch. The batch names the takes that count.
"""

from collections.abc import Sequence

from msgspec.structs import replace
from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.jobs.batches import Batch
from shared.store.documents import Aggregate, Document, forget_all, read_values


class HeldOut(Aggregate):
    """The `held_out` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._held_out = database["held_out"]

    async def setup(self) -> None:
        await self._held_out.create_index([("job_id", ASCENDING)])

    async def put(self, batch: Batch, users: Sequence[str], *, owner: str) -> None:
        """Store the users that this lane holds out, before it takes the batch."""
        key = _key(batch.id, replace(batch, owner=owner).take)
        await self._held_out.replace_one({"_id": key}, {"job_id": batch.job_id, "users": list(users)}, upsert=True)

    async def read(self, batch: Batch) -> list[str]:
        """The users held out by the takes that sent the batch."""
        # A batch of the first version names no takes: its last owner sent it.
        keys = [_key(batch.id, take) for take in batch.holders or (batch.owner,)]
        found = self._held_out.find({"_id": {"$in": keys}}, {"users": 1})
        return [user async for document in found for user in document["users"]]

    async def remove_of(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            await forget_all(self._held_out, {"job_id": job_id})

    async def job_ids(self, *, after: str, limit: int) -> list[str]:
        """The jobs after `after` that hold users out, in order."""
        return await read_values(self._held_out, "job_id", after=after, limit=limit)


def _key(batch_id: str, take: str) -> str:
    return f"{batch_id}/{take}"
