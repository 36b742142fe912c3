"""The users whom control groups hold out, batch by batch, until their job's file of them is written.

A batch may be tried more than once, and its table change in between; so what each take holds out has a document of its
own, and the owner that settled the batch tells which one counts.
"""

from collections.abc import Sequence

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.batches import Batch
from shared.store.documents import Document, translated


class HeldOut:
    """The `held_out` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._held_out = database["held_out"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._held_out.create_index([("job_id", ASCENDING)])

    async def put(self, batch: Batch, users: Sequence[str]) -> None:
        """Note whom this take of the batch holds out."""
        key = _key(batch)
        with translated():
            await self._held_out.replace_one({"_id": key}, {"job_id": batch.job_id, "users": list(users)}, upsert=True)

    async def of(self, batch: Batch) -> list[str]:
        """Whom the batch's last take held out."""
        with translated():
            document = await self._held_out.find_one({"_id": _key(batch)})
        return [] if document is None else list(document["users"])

    async def remove_of(self, job_ids: Sequence[str]) -> None:
        """Forget whom these jobs held out."""
        with translated():
            await self._held_out.delete_many({"job_id": {"$in": list(job_ids)}})


def _key(batch: Batch) -> str:
    return f"{batch.id}/{batch.owner}"
