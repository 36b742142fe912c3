"""Processes: a document for each that runs, or ran an hour ago without a clean end."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.console.processes import RunningProcess
from shared.store.documents import Codec, Document, translate_errors

MOST = 1_000
"""How many processes are read at once."""

_GONE_SINCE = "gone_since"
_codec = Codec(RunningProcess)


class Processes:
    """The `processes` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._processes = database["processes"]

    async def setup(self) -> None:
        """Make the index."""
        await self._processes.create_index([("seen_at", ASCENDING)])

    async def tell(self, process: RunningProcess) -> None:
        """Note how this process fares, at the database's time."""
        fields = _codec.document(process)
        key = {"_id": fields.pop("_id")}
        del fields["seen_at"]
        with translate_errors():
            await self._processes.update_one(key, {"$set": fields, "$currentDate": {"seen_at": True}}, upsert=True)

    async def forget(self, process_id: str) -> None:
        """Forget a process that has ended."""
        with translate_errors():
            await self._processes.delete_one({"_id": process_id})

    async def list(self) -> Sequence[RunningProcess]:
        """All processes by their ids; of very many, those that were heard of last."""
        with translate_errors():
            found = await self._processes.find().sort("seen_at", -1).limit(MOST).to_list()
        return sorted(map(_codec.value, found), key=lambda process: process.id)

    async def find_gone(self, *, before: datetime) -> Sequence[RunningProcess]:
        """Those that were last heard of before then, and of which nobody has noted that they are gone."""
        query: Document = {"seen_at": {"$lt": before}}
        with translate_errors():
            found = await self._processes.find(query).limit(MOST).to_list()
        return [_codec.value(each) for each in found if each.get(_GONE_SINCE) != each["seen_at"]]

    async def note_gone(self, gone: Sequence[RunningProcess]) -> None:
        """Note that these are gone, unless they were heard of meanwhile."""
        with translate_errors():
            for process in gone:
                seen = {"_id": process.id, "seen_at": process.seen_at}
                await self._processes.update_one(seen, {"$set": {_GONE_SINCE: process.seen_at}})

    async def forget_gone(self, *, before: datetime, limit: int) -> int:
        """Forget some that were last heard of before then, and were noted to be gone; returns how many."""
        query: Document = {"seen_at": {"$lt": before}}
        with translate_errors():
            found = await self._processes.find(query, {"seen_at": 1, _GONE_SINCE: 1}).limit(limit).to_list()
            gone = [each for each in found if each.get(_GONE_SINCE) == each["seen_at"]]
            for each in gone:
                await self._processes.delete_one({"_id": each["_id"], "seen_at": each["seen_at"]})
        return len(gone)
