"""Jobs with something left to do, as those see them who look for all of them.

A job belongs to a shard by its incarnation, which is random. So the jobs of a shard are a range of an index.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.clock.occurrences import SHARDS
from shared.domain.instants import ns
from shared.domain.jobs.jobs import RESUMABLE, STARTABLE, JobStatus
from shared.store.documents import Document, translate_errors
from shared.store.jobs.job_documents import KEY_FIELDS, key_of, one_job

_BEGUN = sorted(frozenset(JobStatus) - STARTABLE)
_HELD = sorted(RESUMABLE)
_UNHELD = sorted(frozenset(_BEGUN) - RESUMABLE)
(_SCHEDULED,) = STARTABLE
_BOUNDS = [f"{256 * shard // SHARDS:02x}" for shard in range(1, SHARDS)]
_MANY = 64


class OpenJobs:
    """The open ones in the `jobs` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        """Make the index of shards. It holds all that is read of it."""
        fields = ("open", "status", "incarnation", "_id")
        await self._jobs.create_index([(field, ASCENDING) for field in fields])

    async def has_open(self, app_id: str) -> bool:
        """Whether an app has work that is not finished."""
        with translate_errors():
            return await self._jobs.find_one({"app_id": app_id, "open": True}, {"_id": 1}) is not None

    async def has_open_in(self, group_id: str) -> bool:
        """Whether a group has work that is not finished."""
        with translate_errors():
            return await self._jobs.find_one({"group_id": group_id, "open": True}, {"_id": 1}) is not None

    async def open_keys(self) -> AsyncIterator[str]:
        """The keys of all jobs with something left to do now: those that wait for their start are not among them."""
        async for key in self._keys({"open": True, "status": {"$in": _BEGUN}}):
            yield key

    async def find_shards(self, *, held: bool) -> set[int]:
        """The shards that have such jobs, either held or unheld ones; all shards where there are many. One query."""
        query = {"open": True, "status": {"$in": _HELD if held else _UNHELD}}
        with translate_errors():
            found = await self._jobs.find(query, KEY_FIELDS | {"_id": 0}).limit(_MANY).to_list()
        if len(found) == _MANY:
            return set(range(SHARDS))
        return {bisect_right(_BOUNDS, document.get("incarnation") or "") for document in found}

    async def keys_in(self, shard: int, *, held: bool) -> AsyncIterator[str]:
        """The keys of these jobs of a shard."""
        query = {"open": True, "status": {"$in": _HELD if held else _UNHELD}, "incarnation": _range_of(shard)}
        async for key in self._keys(query):
            yield key

    async def overdue_keys(self, before: datetime) -> AsyncIterator[str]:
        """The keys of jobs that still wait for a start that has passed by then."""
        query = {"open": True, "status": _SCHEDULED.value, "starts_at": {"$lte": ns(before)}}
        async for key in self._keys(query):
            yield key

    async def withdraw(self, job_id: str) -> bool:
        """Forget a job that nobody has begun to plan, of which nothing can have been sent; `False` when there is no
        such."""
        with translate_errors():
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
