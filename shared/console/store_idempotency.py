"""Work that is done once: the first use of each idempotency key, and a digest of each imported thing.

A key cannot serve another request, and a repeated request makes nothing twice. A repeated import compares digests,
and leaves alone the things that were changed or deleted here since.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from pymongo import ASCENDING, ReplaceOne, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError

from shared.core.ids import Idempotency
from shared.drivers.mongo.documents import Aggregate, Document, forget_some, insert_new, make


class FirstUse(Struct, frozen=True):
    """The record of the first request with a key: its time, and the thing it made in the caller's notation; empty if it
    made nothing yet."""

    at: datetime | None = None
    made: str = ""


class IdempotencyKeys(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._keys = database["idempotency_keys"]

    async def setup(self) -> None:
        await self._keys.create_index([("used_at", ASCENDING)])

    async def claim(self, used: Idempotency, *, at: datetime | None = None, made: str = "") -> FirstUse:
        """Use the key for this request. `at` and `made` keep their first values. Raises `Invalid` if the key was used
        for another request."""
        try:
            found = await self._keys.find_one_and_update(
                {"_id": used.key, "digest": used.digest},
                {"$currentDate": {"used_at": True}, "$setOnInsert": {"at": at, "made": made}},
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        except DuplicateKeyError:
            found = None
        if found is not None:
            return _value(found)
        # Two equal requests may insert at once: the server repeats such an upsert only if the query is `_id` alone.
        first = await self.recall(used)
        if first is None:
            raise Idempotency(used.key, "").refuse(used)
        await self._keys.update_one({"_id": used.key}, {"$currentDate": {"used_at": True}})
        return first

    async def recall(self, used: Idempotency) -> FirstUse | None:
        found = await self._keys.find_one({"_id": used.key})
        return _value(found) if found is not None and Idempotency(found["_id"], found["digest"]).is_same(used) else None

    async def remember(self, key: str, made: str) -> None:
        await self._keys.update_one({"_id": key}, {"$set": {"made": made}})

    async def replace_made(self, key: str, made: str, *, before: str) -> bool:
        query = {"_id": key, "made": before}
        return (await self._keys.update_one(query, {"$set": {"made": made}})).matched_count == 1

    async def forget(self, *, before: datetime, limit: int) -> int:
        return await forget_some(self._keys, {"used_at": {"$lt": before}}, limit)


def _value(document: Document) -> FirstUse:
    return FirstUse(document["at"], document["made"])


class Imports(Aggregate):
    """The `imports` collection, one document for each thing: `{_id: "<kind>/<id>", digest}`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._imports = database["imports"]

    async def setup(self) -> None:
        await make(self._imports)

    async def find_noted(self, kind: str, ids: Sequence[str]) -> dict[str, str]:
        keys = [f"{kind}/{id}" for id in ids]
        found = await self._imports.find({"_id": {"$in": keys}}).to_list()
        return {document["_id"].partition("/")[2]: document["digest"] for document in found}

    async def note(self, kind: str, digests: Mapping[str, str]) -> None:
        documents = [{"_id": f"{kind}/{id}", "digest": digest} for id, digest in digests.items()]
        older = await insert_new(self._imports, documents)
        changes = [ReplaceOne({"_id": documents[position]["_id"]}, documents[position]) for position in older]
        if changes:
            await self._imports.bulk_write(changes, ordered=False)
