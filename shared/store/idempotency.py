"""Idempotency keys: which request a key was used for, so that it cannot be used for another."""

from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from shared.domain.errors import Invalid
from shared.store.documents import Document, translated


class IdempotencyKeys:
    """The `idempotency_keys` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._keys = database["idempotency_keys"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._keys.create_index([("used_at", ASCENDING)])

    async def claim(self, key: str, digest: str) -> bool:
        """Use the key (with its namespace) for the request with this digest; `False` when it was used for it before.

        Raises:
            Invalid: it was used for another request.
        """
        try:
            with translated():
                result = await self._keys.update_one(
                    {"_id": key, "digest": digest}, {"$currentDate": {"used_at": True}}, upsert=True
                )
        except DuplicateKeyError:
            raise Invalid("this key was used for another request", field="Idempotency-Key") from None
        return result.upserted_id is not None

    async def forget(self, *, before: datetime, limit: int) -> int:
        """Forget some that were last used before then; how many."""
        query = {"used_at": {"$lt": before}}
        with translated():
            ids = [document["_id"] async for document in self._keys.find(query, {"_id": 1}).limit(limit)]
            return (await self._keys.delete_many({"_id": {"$in": ids}} | query)).deleted_count if ids else 0
