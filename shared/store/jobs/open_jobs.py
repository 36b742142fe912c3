"""Open jobs, for searches over all of them. A job belongs to a shard by its incarnation, which is random, so the jobs
of a shard are a range of an index."""

from bisect import bisect_right
from collections.abc import AsyncIterator
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.clock.occurrences import SHARDS
from shared.domain.instants import ns
from shared.domain.jobs.jobs import RESUMABLE, STARTABLE, JobStatus
from shared.store.documents import Aggregate, Document, translate_errors
from shared.store.jobs.job_documents import KEY_FIELDS, key_of, one_job

_BEGUN = sorted(frozenset(JobStatus) - STARTABLE)
_HELD = sorted(RESUMABLE)
_UNHELD = sorted(frozenset(_BEGUN) - RESUMABLE)
(_SCHEDULED,) = STARTABLE
_BOUNDS = [f"{256 * shard // SHARDS:02x}" for shard in range(1, SHARDS)]
_MANY = 64


class OpenJobs(Aggregate):
    """The open ones in the `jobs` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        fields = ("open", "status", "incarnation", "_id")
        await self._jobs.create_index([(field, ASCENDING) for field in fields])

    async def has_open(self, app_id: str) -> bool:
        return await self._jobs.find_one({"app_id": app_id, "open": True}, {"_id": 1}) is not None

    async def has_open_in(self, group_id: str) -> bool:
        return await self._jobs.find_one({"group_id": group_id, "open": True}, {"_id": 1}) is not None

    async def open_keys(self) -> AsyncIterator[str]:
        """The keys of all jobs with work now, without those that wait for their start."""
        async for key in self._keys({"open": True, "status": {"$in": _BEGUN}}):
            yield key

    async def find_shards(self, *, held: bool) -> set[int]:
        """The shards with held or unheld jobs; all shards if there are many jobs. One query."""
        query = {"open": True, "status": {"$in": _HELD if held else _UNHELD}}
        found = await self._jobs.find(query, KEY_FIELDS | {"_id": 0}).limit(_MANY).to_list()
        if len(found) == _MANY:
            return set(range(SHARDS))
        return {bisect_right(_BOUNDS, document.get("incarnation") or "") for document in found}

    async def keys_in(self, shard: int, *, held: bool) -> AsyncIterator[str]:
        query = {"open": True, "status": {"$in": _HELD if held else _UNHELD}, "incarnation": _range_of(shard)}
        async for key in self._keys(query):
            yield key

    async def overdue_keys(self, before: datetime) -> AsyncIterator[str]:
        """The keys of jobs that still wait for a start before `before`."""
        query = {"open": True, "status": _SCHEDULED.value, "starts_at": {"$lte": ns(before)}}
        async for key in self._keys(query):
            yield key

    async def withdraw(self, job_id: str) -> bool:
        """Delete a job whose plan has not begun, of which nothing can have been sent; `False` if there is none."""
        result = await self._jobs.delete_one(one_job(job_id) | {"plan.source": None, "open": True})
        return result.deleted_count == 1

    async def _keys(self, query: Document) -> AsyncIterator[str]:
        with translate_errors():
            async for document in self._jobs.find(query, KEY_FIELDS):
                yield key_of(document)


def _range_of(shard: int) -> Document:
    if shard == 0:
        return {"$not": {"$gte": _BOUNDS[0]}}  # with jobs of the first version, which have none
    return {"$gte": _BOUNDS[shard - 1]} | ({"$lt": _BOUNDS[shard]} if shard < len(_BOUNDS) else {})
