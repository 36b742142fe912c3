"""The open jobs that a bulk action matches: few beside all jobs."""

from collections.abc import Set as AbstractSet

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.console.bulk_actions import BulkFilter
from shared.domain.jobs.jobs import JobStatus, split_key
from shared.store.documents import Aggregate, Document, Page
from shared.store.jobs.job_documents import KEY_FIELDS, key_of


class BulkJobsOf(Aggregate):
    """Reads the `jobs` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def count(self, statuses: AbstractSet[JobStatus], wanted: BulkFilter, *, most: int) -> int:
        return await self._jobs.count_documents(_query(statuses, wanted), limit=most)

    async def keys(
        self, statuses: AbstractSet[JobStatus], wanted: BulkFilter, *, before: int, after: str = "", limit: int
    ) -> Page[str]:
        """The keys of matching jobs made before `before` (ns), by id, after the key `after`."""
        query = _query(statuses, wanted) | {"created_at": {"$lt": before}, "_id": {"$gt": split_key(after)[0]}}
        found = self._jobs.find(query, KEY_FIELDS).sort("_id", ASCENDING).limit(limit + 1)
        keys = [key_of(document) async for document in found]
        page = Page(keys[:limit])
        page.more = len(keys) > limit
        return page


def _query(statuses: AbstractSet[JobStatus], wanted: BulkFilter) -> Document:
    query: Document = {"open": True, "status": {"$in": sorted(statuses)}}
    query |= {"app_id": wanted.app} if wanted.app else {}
    query |= {"template_names": wanted.template.split(",")} if wanted.template else {}
    query |= {"created_by": wanted.by} if wanted.by else {}
    return query
