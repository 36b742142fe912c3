"""Figures of the whole deployment: its processes, its minutes with activity, and its namespaces.

A process has a document while it runs, and for an hour if it ended without notice. There is no list of namespaces:
each kind is read in order from an index, so the cost of a page depends on its size alone.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pymongo import ASCENDING
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from shared.accounts.rules.callers import token_namespace, user_namespace
from shared.console.rules.processes import MOST, Counts, MinuteCounts, RunningProcess, minute_id
from shared.drivers.mongo.documents import Aggregate, Codec, Document, Page, forget_some, make, read_values

MOST_PROCESSES = 1_000
"""Maximum processes of a read."""
_GONE_SINCE = "gone_since"
_process_codec = Codec(RunningProcess)


class Processes(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._processes = database["processes"]

    async def setup(self) -> None:
        await self._processes.create_index([("seen_at", ASCENDING)])

    async def tell(self, process: RunningProcess) -> None:
        fields = _process_codec.document(process)
        key = {"_id": fields.pop("_id")}
        del fields["seen_at"]
        await self._processes.update_one(key, {"$set": fields, "$currentDate": {"seen_at": True}}, upsert=True)

    async def forget(self, process_id: str) -> None:
        await self._processes.delete_one({"_id": process_id})

    async def list(self) -> Sequence[RunningProcess]:
        """The processes by id; beyond `MOST_PROCESSES`, those last heard of."""
        found = await self._processes.find().sort("seen_at", -1).limit(MOST_PROCESSES).to_list()
        return sorted(map(_process_codec.value, found), key=lambda process: process.id)

    async def find_gone(self, *, before: datetime) -> Sequence[RunningProcess]:
        """The processes last heard of before `before` and not yet marked as gone."""
        query: Document = {"seen_at": {"$lt": before}}
        found = await self._processes.find(query).limit(MOST_PROCESSES).to_list()
        return [_process_codec.value(each) for each in found if each.get(_GONE_SINCE) != each["seen_at"]]

    async def note_gone(self, gone: Sequence[RunningProcess]) -> None:
        for process in gone:
            seen = {"_id": process.id, "seen_at": process.seen_at}
            await self._processes.update_one(seen, {"$set": {_GONE_SINCE: process.seen_at}})

    async def forget_gone(self, *, before: datetime, limit: int) -> int:
        query: Document = {"seen_at": {"$lt": before}}
        found = await self._processes.find(query, {"seen_at": 1, _GONE_SINCE: 1}).limit(limit).to_list()
        gone = [each for each in found if each.get(_GONE_SINCE) == each["seen_at"]]
        for each in gone:
            await self._processes.delete_one({"_id": each["_id"], "seen_at": each["seen_at"]})
        return len(gone)


_minute_codec = Codec(MinuteCounts)


class Minutes(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._minutes = database["minutes"]

    async def setup(self) -> None:
        await make(self._minutes)

    async def add(self, at: datetime, counts: Counts) -> None:
        await self._minutes.update_one({"_id": minute_id(at)}, {"$inc": dict(_paths(counts))}, upsert=True)

    async def since(self, at: datetime) -> Sequence[MinuteCounts]:
        found = self._minutes.find({"_id": {"$gte": minute_id(at)}}).sort("_id", ASCENDING).limit(MOST)
        return [_minute_codec.value(document) async for document in found]

    async def forget(self, *, before: datetime, limit: int) -> int:
        return await forget_some(self._minutes, {"_id": {"$lt": minute_id(before)}}, limit)


def _paths(counts: Counts) -> list[tuple[str, Any]]:
    nested = [
        (f"{field}.{key}", count) for field, value in counts.items() if not isinstance(value, int)
        for key, count in value.items()
    ]  # fmt: skip
    return [*((field, value) for field, value in counts.items() if isinstance(value, int)), *nested]


class NamespaceLists(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._users = database["users"]
        self._tokens = database["tokens"]
        self._schedules = database["schedules"]

    async def setup(self) -> None:
        await self._tokens.create_index([("namespace", ASCENDING), ("_id", ASCENDING)])

    async def page(self, *, after: str = "", limit: int) -> Page[str]:
        found = {
            *await self._read(self._users, "email", {}, user_namespace(""), after, limit + 1),
            *await self._read(self._tokens, "_id", {"namespace": ""}, token_namespace(""), after, limit + 1),
            *await read_values(self._tokens, "namespace", after=after, limit=limit + 1),
            *await read_values(self._schedules, "namespace", after=after, limit=limit + 1),
        }
        page = Page(sorted(found)[:limit])
        page.more = len(found) > limit
        return page

    async def count_tokens(self, namespace: str, *, most: int) -> int:
        named = await self._tokens.count_documents({"namespace": namespace}, limit=most)
        own = {"_id": namespace.removeprefix(token_namespace("")), "namespace": ""}
        return min(named + (await self._tokens.find_one(own, {"_id": 1}) is not None), most)

    async def _read(
        self, collection: AsyncCollection[Document], field: str, query: Document, prefix: str, after: str, limit: int
    ) -> Sequence[str]:
        """The namespaces after `after` that consist of a prefix and a field's value."""
        if after > prefix and not after.startswith(prefix):
            return []
        behind: Any = {field: {"$gt": after.removeprefix(prefix) if after.startswith(prefix) else ""}}
        found = collection.find(query | behind, {field: 1}).sort(field, ASCENDING).limit(limit)
        return [prefix + document[field] async for document in found]
