"""Jobs with nothing left to do, which ended here or in another system.

A closed job has `kept_since` while it has its batches, and `removing` during its deletion; sparse indexes find them.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.instants import ns
from shared.domain.jobs.jobs import Job, split_key
from shared.domain.jobs.rate_chart import RatePoint
from shared.store.documents import Aggregate, Document, free_keys, insert_new
from shared.store.jobs.job_documents import KEY_FIELDS, any_job, counts_of, document_of, key_of, one_job

_KEPT = ("kept_since", "personal_since", "ledger_since")


class ClosedJobs(Aggregate):
    """The closed ones in the `jobs` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        await self._jobs.create_index([("kept_since", ASCENDING)], sparse=True)
        await self._jobs.create_index([("removing", ASCENDING)], sparse=True)
        await self._jobs.create_index([(field, ASCENDING) for field in ("open", "changed_at", "created_at")])

    async def add(self, jobs: Sequence[Job]) -> set[int]:
        """Insert jobs that ended in another system, with their feedback, if their ids are free; returns the positions
        of the others. They have no batches, so `find_ended_before` never returns them."""
        return await insert_new(self._jobs, [document_of(job) | {"feedbacks": counts_of(job)} for job in jobs])

    async def replace(self, job: Job) -> bool:
        """Replace a closed job; `False` if there is none. Feedback counted here stays: a count only grows to that of
        `job`."""
        fields = {name: value for name, value in document_of(job).items() if name not in {"_id", "feedbacks"}}
        grown = {f"feedbacks.{name}": count for name, count in counts_of(job).items()}
        change = {"$set": fields} | ({"$max": grown} if grown else {})
        return (await self._jobs.update_one({"_id": job.id, "open": False}, change)).matched_count == 1

    async def find_of_app(self, app_id: str, *, limit: int) -> list[str]:
        found = self._jobs.find({"app_id": app_id, "open": False}, KEY_FIELDS).limit(limit)
        return [key_of(document) async for document in found]

    async def find_ended_before(self, before: datetime, services: Collection[str], *, limit: int) -> list[str]:
        """The keys of up to `limit` jobs of these services that were closed before `before` (the database's clock) and
        have their batches, the earliest first."""
        query = {"kept_since": {"$lt": before}, "service": {"$in": list(services)}}
        found = self._jobs.find(query, KEY_FIELDS).sort("kept_since", ASCENDING).limit(limit)
        return [key_of(document) async for document in found]

    async def note_batches_removed(self, job_ids: Sequence[str]) -> None:
        """Record that these closed jobs have no batches any more, so that `find_ended_before` does not return them
        again."""
        await self._jobs.update_many(any_job(job_ids), {"$unset": {"kept_since": ""}})

    async def find_expired(self, before: datetime, *, without_groups: Sequence[str], limit: int) -> list[str]:
        """The keys of up to `limit` jobs that ended before `before`, are not being removed, and are in none of these
        groups. A job that ended in another system counts by its creation."""
        ended = {"changed_at": {"$lt": before}}
        elsewhere = {"changed_at": None, "created_at": {"$lt": ns(before)}}
        keys: list[str] = []
        for query in (ended, elsewhere):
            if len(keys) < limit:
                wanted = {"open": False, "removing": None, "group_id": {"$nin": list(without_groups)}} | query
                found = self._jobs.find(wanted, KEY_FIELDS).limit(limit - len(keys))
                keys += [key_of(document) async for document in found]
        return keys

    async def begin_removal(self, job_key: str) -> bool:
        """Mark an ended job for removal, which excludes retries and retention; `False` if it has not ended."""
        change = {"$set": {"removing": True}, "$unset": dict.fromkeys(_KEPT, "")}
        return (await self._jobs.update_one(one_job(job_key) | {"open": False}, change)).matched_count == 1

    async def find_removing(self, services: Collection[str], *, limit: int) -> list[str]:
        query = {"removing": True, "service": {"$in": list(services)}}
        return [key_of(each) async for each in self._jobs.find(query, KEY_FIELDS).limit(limit)]

    async def find_removing_services(self) -> set[str]:
        return set(await self._jobs.distinct("service", {"removing": True}))

    async def has_kept_in(self, group_id: str) -> bool:
        return await self._jobs.find_one({"group_id": group_id, "removing": None}, {"_id": 1}) is not None

    async def with_file_plans(self, plan_ids: Sequence[str]) -> set[str]:
        """The keys of file plans that belong to a job, or to a group with jobs."""
        ids = [split_key(plan_id)[0] for plan_id in plan_ids]
        shown = {"incarnation": 1, "group_id": 1}
        alone = {key_of(document) async for document in self._jobs.find({"_id": {"$in": ids}}, shown)}
        grouped = self._jobs.find({"group_id": {"$in": ids}}, shown)
        return alone | {key_of(document, "group_id") async for document in grouped}

    async def expire_keys(self, before: datetime, *, limit: int) -> int:
        return await free_keys(self._jobs, before, limit)

    async def remove(self, job_ids: Sequence[str]) -> None:
        await self._jobs.delete_many(any_job(job_ids) | {"open": False})

    async def keep_rate(self, job_id: str, chart: Sequence[RatePoint]) -> None:
        """Store the rate chart of a job before it is closed. Readers of jobs do not get it."""
        points = [[point.at, point.per_second] for point in chart]
        await self._jobs.update_one(one_job(job_id), {"$set": {"rate_chart": points}})

    async def get_rate(self, job_id: str) -> list[RatePoint]:
        """The stored chart; empty for a job that was closed by a version without charts."""
        document = await self._jobs.find_one(one_job(job_id), {"rate_chart": 1}) or {}
        return [RatePoint(at, per_second) for at, per_second in document.get("rate_chart", ())]
