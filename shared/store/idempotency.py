"""Idempotency keys: which request a key was used for, so that it cannot be used for another; and what the first request
made, so that a repeated one makes nothing again."""

from datetime import datetime

from msgspec import Struct
from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from shared.domain.idempotency import Idempotency
from shared.store.documents import Document, forget_some, translate_errors


class FirstUse(Struct, frozen=True):
    """The record of the first request with a key: when it came, and what it made, in its own notation; empty
    where it did not get so far."""

    at: datetime | None = None
    made: str = ""


class IdempotencyKeys:
    """The `idempotency_keys` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._keys = database["idempotency_keys"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._keys.create_index([("used_at", ASCENDING)])

    async def claim(self, used: Idempotency, *, at: datetime | None = None, made: str = "") -> FirstUse:
        """Use the key for this request. `at` and `made` are kept from the first time.

        Raises:
            Invalid: it was used for another request.
        """
        try:
            with translate_errors():
                found = await self._keys.find_one_and_update(
                    {"_id": used.key, "digest": used.digest},
                    {"$currentDate": {"used_at": True}, "$setOnInsert": {"at": at, "made": made, "whole": used.whole}},
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                )
        except DuplicateKeyError:
            found = None
        if found is not None:
            return _value(found)
        # Look also where two equal requests insert at once: the server tries such an upsert again only by `_id` alone.
        first = await self.recall(used)
        if first is None:
            raise Idempotency(used.key, "").refuse(used)
        with translate_errors():
            await self._keys.update_one({"_id": used.key}, {"$currentDate": {"used_at": True}})
        return first

    async def recall(self, used: Idempotency) -> FirstUse | None:
        """The key's first use for this request; `None` when it was not used for it."""
        with translate_errors():
            found = await self._keys.find_one({"_id": used.key})
        return _value(found) if found is not None and _identity(found).is_same(used) else None

    async def remember(self, key: str, made: str) -> None:
        """Keep what the request with this key has made."""
        with translate_errors():
            await self._keys.update_one({"_id": key}, {"$set": {"made": made}})

    async def replace_made(self, key: str, made: str, *, before: str) -> bool:
        """Keep this in the place of what was kept `before`; `False` when something else is kept by now."""
        # A field that is missing equals null.
        query = {"_id": key, "made": {"$in": [before] if before else ["", None]}}
        with translate_errors():
            return (await self._keys.update_one(query, {"$set": {"made": made}})).matched_count == 1

    async def forget(self, *, before: datetime, limit: int) -> int:
        """Forget some that were last used before then; returns how many."""
        return await forget_some(self._keys, {"used_at": {"$lt": before}}, limit)


def _identity(document: Document) -> Idempotency:
    return Idempotency(document["_id"], document["digest"], whole=document.get("whole", ""))


def _value(document: Document) -> FirstUse:
    return FirstUse(document["at"], document.get("made", ""))
