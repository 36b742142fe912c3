"""Groups of a localized push: one document each. The content of their jobs is stored as JSON text."""

from collections.abc import AsyncIterator
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.errors import Conflict
from shared.domain.instants import ns
from shared.domain.jobs.groups import Group
from shared.store.documents import Aggregate, Codec, Document, free_keys, translate_errors

_codec = Codec(Group, json=("job",))


class Groups(Aggregate):
    """The `groups` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._groups = database["groups"]

    async def setup(self) -> None:
        await self._groups.create_index([("idempotency.key", ASCENDING)], unique=True, sparse=True)
        await self._groups.create_index([("idempotency.created_at", ASCENDING)], sparse=True)
        await self._groups.create_index([("unmade_since", ASCENDING)], sparse=True)
        await self._groups.create_index([("app_id", ASCENDING)])

    async def add(self, group: Group) -> None:
        document = _codec.document(group) | {"unmade_since": group.created_at}
        if group.idempotency is None:
            del document["idempotency"]
        else:
            document["idempotency"]["created_at"] = group.created_at
        with translate_errors(duplicate=lambda: Conflict("a group with this id or idempotency key exists", field="id")):
            await self._groups.insert_one(document)

    async def get(self, group_id: str) -> Group | None:
        return _codec.maybe(await self._groups.find_one({"_id": group_id}))

    async def with_key(self, key: str) -> Group | None:
        return _codec.maybe(await self._groups.find_one({"idempotency.key": key}))

    async def find_incomplete(self, before: datetime) -> AsyncIterator[Group]:
        """The groups stored before `before` that may lack jobs."""
        with translate_errors():
            async for document in self._groups.find({"unmade_since": {"$lt": ns(before)}}):
                yield _codec.value(document)

    async def mark_complete(self, group_id: str) -> None:
        await self._groups.update_one({"_id": group_id}, {"$set": {"made": True}, "$unset": {"unmade_since": ""}})

    async def expire_keys(self, before: datetime, *, limit: int) -> int:
        return await free_keys(self._groups, before, limit)

    async def remove(self, group_id: str) -> None:
        await self._groups.delete_one({"_id": group_id})

    async def remove_of(self, app_id: str) -> None:
        await self._groups.delete_many({"app_id": app_id})
