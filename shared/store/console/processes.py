"""Processes: a document for each that runs, or ran within the last hour and ended without notice."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.console.processes import RunningProcess
from shared.store.documents import Aggregate, Codec, Document

MOST = 1_000
"""Maximum processes of a read."""

_GONE_SINCE = "gone_since"
_codec = Codec(RunningProcess)


class Processes(Aggregate):
    """The `processes` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._processes = database["processes"]

    async def setup(self) -> None:
        await self._processes.create_index([("seen_at", ASCENDING)])

    async def tell(self, process: RunningProcess) -> None:
        fields = _codec.document(process)
        key = {"_id": fields.pop("_id")}
        del fields["seen_at"]
        await self._processes.update_one(key, {"$set": fields, "$currentDate": {"seen_at": True}}, upsert=True)

    async def forget(self, process_id: str) -> None:
        await self._processes.delete_one({"_id": process_id})

    async def list(self) -> Sequence[RunningProcess]:
        """The processes by id; beyond `MOST`, those last heard of."""
        found = await self._processes.find().sort("seen_at", -1).limit(MOST).to_list()
        return sorted(map(_codec.value, found), key=lambda process: process.id)

    async def find_gone(self, *, before: datetime) -> Sequence[RunningProcess]:
        """The processes last heard of before `before` and not yet marked as gone."""
        query: Document = {"seen_at": {"$lt": before}}
        found = await self._processes.find(query).limit(MOST).to_list()
        return [_codec.value(each) for each in found if each.get(_GONE_SINCE) != each["seen_at"]]

    async def note_gone(self, gone: Sequence[RunningProcess]) -> None:
        """Mark these as gone, unless they were heard of meanwhile."""
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
