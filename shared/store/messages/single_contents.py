"""Contents of single messages, apart from the entries, which are read and written in bulk and must stay small.

A content is stored before its entry, and removed after the entry is no longer pending. After a crash, `page` finds
contents by age.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.store.documents import Aggregate, Document, insert_new, make


class SingleContents(Aggregate):
    """The collection `single_contents`. All raise `Unavailable`."""

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
