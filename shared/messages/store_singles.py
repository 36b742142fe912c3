"""Single messages in the ledger: pending ones, the owner of their lease, and their contents.

They change as all entries do, by `MessageLedger.write`, which requires the lease of the credential. Contents lie
apart from the entries, which are read and written in bulk and must stay small. A content is stored before its
entry, and removed after the entry is no longer pending. After a crash, `page` finds contents by age.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import pymongo
from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from shared.drivers.mongo.documents import Aggregate, Codec, Document, insert_new, make, translate_errors
from shared.messages.rules.ledger import Message
from shared.messages.rules.singles import SendLease


class SingleContents(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._contents = database["single_contents"]

    async def setup(self) -> None:
        await make(self._contents)

    async def add(self, contents: Mapping[str, str], *, at: datetime) -> None:
        """Store contents as JSON, by message id; existing ones stay."""
        documents = [
            {"_id": message_id, "content": content, "size": len(content.encode()), "at": at}
            for message_id, content in contents.items()
        ]
        await insert_new(self._contents, documents)

    async def find(self, message_ids: Sequence[str], *, most_bytes: int) -> dict[str, str]:
        """The contents of the first of these messages, up to `most_bytes` together but at least one, by id."""
        sizes = {
            document["_id"]: document["size"]
            for document in await self._contents.find({"_id": {"$in": list(message_ids)}}, {"size": 1}).to_list()
        }
        chosen, total = list[str](), 0
        for message_id in message_ids:
            total += sizes.get(message_id, 0)
            if chosen and total > most_bytes:
                break
            chosen += [message_id] if message_id in sizes else []
        found = await self._contents.find({"_id": {"$in": chosen}}, {"content": 1}).to_list()
        return {document["_id"]: document["content"] for document in found}

    async def find_missing(self, message_ids: Collection[str]) -> set[str]:
        found = await self._contents.find({"_id": {"$in": sorted(message_ids)}}, {"_id": 1}).to_list()
        return {*message_ids} - {document["_id"] for document in found}

    async def remove(self, message_ids: Collection[str]) -> None:
        await self._contents.delete_many({"_id": {"$in": sorted(message_ids)}})

    async def page(self, *, after: str, before: datetime, limit: int) -> tuple[list[str], str]:
        """The ids of contents stored before `before`, after the id `after`, and the id to continue after; `""` at the
        end."""
        found = self._contents.find({"_id": {"$gt": after}}, {"at": 1}).sort([("_id", ASCENDING)]).limit(limit)
        documents = await found.to_list()
        old = [document["_id"] for document in documents if document["at"] < before]
        return old, documents[-1]["_id"] if len(documents) == limit else ""


_codec = Codec(Message)
_leases = Codec(SendLease)
_WANTED_WITHIN_SECONDS = 3.0
_CREDENTIAL, _NAMESPACE, _DUE = "pending.credential_id", "pending.namespace", "pending.due"


class SingleMessages(Aggregate):
    """The single messages in `messages`, and the collection `send_leases`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._messages = database["messages"]
        self._leases = database["send_leases"]

    async def setup(self) -> None:
        """Make the indexes, which contain only pending messages."""
        await self._messages.create_index([(_CREDENTIAL, ASCENDING), (_DUE, ASCENDING)], sparse=True)
        await self._messages.create_index([(_NAMESPACE, ASCENDING), (_DUE, ASCENDING)], sparse=True)
        await make(self._leases)

    async def add(self, messages: Sequence[Message]) -> set[str]:
        positions = await insert_new(self._messages, [_codec.document(message) for message in messages])
        return {messages[position].id for position in positions}

    async def find_due(self, credential_id: str, *, now: datetime, limit: int) -> list[Message]:
        query = {_CREDENTIAL: credential_id, _DUE: {"$lte": now}}
        found = self._messages.find(query).sort([(_CREDENTIAL, ASCENDING), (_DUE, ASCENDING)]).limit(limit)
        return [_codec.value(document) for document in await found.to_list()]

    async def has_pending(self, credential_id: str, *, app_id: str = "") -> bool:
        query = {_CREDENTIAL: credential_id} | ({"app_id": app_id} if app_id else {})
        return await self._messages.find_one(query, {"_id": 1}) is not None

    async def has_due_at(self, credential_id: str, due: datetime) -> bool:
        return await self._messages.find_one({_CREDENTIAL: credential_id, _DUE: due}, {"_id": 1}) is not None

    async def withdraw(self, message_ids: Sequence[str]) -> None:
        """Delete the messages that no worker has called or is about to call."""
        uncalled = {"_id": {"$in": list(message_ids)}, "attempt": {"$in": [None, 0]}}
        await self._messages.delete_many(uncalled)

    async def find_waiting(self, *, since: datetime, after: str = "") -> str | None:
        """The first credential after `after` with messages due since `since`."""
        query = {_CREDENTIAL: {"$gt": after}, _DUE: {"$lte": since}}
        found = await self._messages.find_one(query, {_CREDENTIAL: 1}, sort=[(_CREDENTIAL, ASCENDING)])
        return None if found is None else found["pending"]["credential_id"]

    async def count_due(self, namespace: str, *, now: datetime, most: int) -> int:
        return await self._messages.count_documents({_NAMESPACE: namespace, _DUE: {"$lte": now}}, limit=most)

    async def want(self, credential_id: str) -> SendLease:
        """Raise the lease's `wanted`; returns the lease. Gives up early if a transaction of the owner locks it: before
        the next try the owner may be silent, so that its session can be ended."""
        with translate_errors(), pymongo.timeout(_WANTED_WITHIN_SECONDS):
            document: Any = await self._leases.find_one_and_update(
                {"_id": credential_id},
                {"$inc": {"wanted": 1}},
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        return _leases.value(document)

    async def get_lease(self, credential_id: str) -> SendLease | None:
        return _leases.maybe(await self._leases.find_one({"_id": credential_id}))

    async def take(self, lease: SendLease, *, owner: str) -> bool:
        return await self._give({"_id": lease.id, "owner": lease.owner or None}, owner)

    async def release(self, lease: SendLease, *, owner: str) -> bool:
        """Release the lease; `False` if another owner has it, or `wanted` was raised since it was read."""
        return await self._give({"_id": lease.id, "owner": owner, "wanted": lease.wanted}, "")

    async def resign(self, credential_id: str, *, owner: str) -> None:
        """Release the lease, though messages may be left."""
        await self._give({"_id": credential_id, "owner": owner}, "")

    async def forget(self, credential_id: str) -> None:
        await self._leases.delete_one({"_id": credential_id})

    async def _give(self, query: Document, owner: str) -> bool:
        change: Document = {"$set": {"owner": owner}} if owner else {"$unset": {"owner": ""}}
        given = await self._leases.update_one(query, change | {"$currentDate": {"changed_at": True}})
        return given.matched_count == 1
