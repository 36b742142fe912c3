"""Idempotency keys: which request a key was used for, so that it cannot be used for another."""

from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from shared.domain.errors import Invalid
from shared.store.documents import Document, forget_some, translated


class IdempotencyKeys:
    """The `idempotency_keys` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._keys = database["idempotency_keys"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._keys.create_index([("used_at", ASCENDING)])

    async def claim(self, key: str, digest: str, *, at: datetime | None = None) -> bool:
        """Use the key (with its namespace) for the request with this digest; `False` when it was used for it before.
        `at` is kept from the first time.

        Raises:
            Invalid: it was used for another request.
        """
        try:
            with translated():
                result = await self._keys.update_one(
                    {"_id": key, "digest": digest},
                    {"$currentDate": {"used_at": True}, "$setOnInsert": {"at": at}},
                    upsert=True,
                )
        except DuplicateKeyError:
            # Also where two equal requests insert at once: the server tries such an upsert again only by `_id` alone.
            with translated():
                if await self._keys.find_one({"_id": key, "digest": digest}, {"_id": 1}) is not None:
                    return False
            raise Invalid("this key was used for another request", field="Idempotency-Key") from None
        return result.upserted_id is not None

    async def moment(self, key: str) -> datetime | None:
        """The `at` of the key's first use."""
        with translated():
            found = await self._keys.find_one({"_id": key}, {"at": 1})
        return None if found is None else found["at"]

    async def forget(self, *, before: datetime, limit: int) -> int:
        """Forget some that were last used before then; how many."""
        return await forget_some(self._keys, {"used_at": {"$lt": before}}, limit)
