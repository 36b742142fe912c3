"""Jobs with something left to do, as those see them who look for all of them."""

from collections.abc import AsyncIterator
from datetime import datetime

from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.instants import ns
from shared.domain.jobs.jobs import STARTABLE, JobStatus
from shared.store.documents import Document, translate_errors
from shared.store.jobs.job_documents import KEY_FIELDS, key_of, one_job

_BEGUN = sorted(frozenset(JobStatus) - STARTABLE)
(_SCHEDULED,) = STARTABLE


class OpenJobs:
    """The open ones in the `jobs` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        """Nothing to make: the indexes are those of all jobs."""

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
