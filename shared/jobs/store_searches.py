"""Searches over jobs: lists of many apps with the newest first, open jobs by their shard, and closed ones.

A job's `place` is its `created_at` and id as text, in sort order, so each list is one range of one index. A job
belongs to a shard by its incarnation, which is random, so the jobs of a shard are a range of an index. A closed job
has `kept_since` while it has its batches, and `removing` during its deletion; sparse indexes find them.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime

from pymongo import ASCENDING, DESCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.accounts.rules.apps import fold_email
from shared.clock.rules.occurrences import SHARDS
from shared.core.instants import ns
from shared.drivers.mongo.documents import Aggregate, Document, Page, free_keys, insert_new, read_page, translate_errors
from shared.jobs.rules.jobs import RESUMABLE, STARTABLE, Job, JobStatus, split_key
from shared.jobs.rules.progress import RatePoint
from shared.jobs.store_jobs import (
    KEY_FIELDS,
    any_job,
    counts_of,
    document_of,
    job_of,
    key_of,
    one_job,
    place_at,
)

COUNTED = 100_000
"""The number at which counting ends."""
GROUPS_AT_ONCE = 50
"""Maximum localized pushes on a page: each has a job for some forty zones."""
_LISTED = {"plan.templates": 0, "context": 0}
(_SCHEDULED,) = STARTABLE
_INDEXES = (
    ("place",),
    ("app_id", "place"),
    ("status", "place"),
    ("template_names", "place"),
    ("created_by", "place"),
    ("app_id", "status", "place"),
    ("app_id", "template_names", "place"),
    ("app_id", "created_by", "place"),
)
_FAILED = {"failure": {"$gt": ""}}
# The few jobs with a failure, without the others of their status. The server uses such an index only for a query
# with the same condition.
_INDEXES_OF_FAILED = (
    [("status", ASCENDING), ("place", DESCENDING)],
    [("app_id", ASCENDING), ("status", ASCENDING), ("place", DESCENDING)],
)


class JobLists(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        for fields in _INDEXES:
            await self._jobs.create_index([(field, ASCENDING) for field in fields])
        for keys in _INDEXES_OF_FAILED:
            await self._jobs.create_index(keys, partialFilterExpression=_FAILED)

    async def page_of_app(
        self, app_id: str, *, template: str = "", after: tuple[int, str] | None = None, limit: int
    ) -> Page[Job]:
        """An app's jobs, the oldest first, after the position (`created_at`, id), without their contexts. `template` is
        a job's template names as given, joined by commas."""
        query: Document = {"app_id": app_id}
        if template:
            query["template_names"] = template.split(",")
        if after is not None:
            created_at, job_id = after
            query["$or"] = [{"created_at": {"$gt": created_at}}, {"created_at": created_at, "_id": {"$gt": job_id}}]
        order = ("created_at", "_id")
        return await read_page(self._jobs, query, job_of, order=order, limit=limit, without=_LISTED)

    async def page(
        self,
        *,
        app_id: str = "",
        status: JobStatus | None = None,
        failed: bool | None = None,
        template: str = "",
        by: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        before: str = "",
        limit: int,
        grouped: bool = False,
    ) -> Page[Job]:
        """The jobs before the place `before`, the newest first, without their contexts: of this app, status, exact
        template names and maker, with or without a failure, made from `since` on and before `until`. If `grouped`, one
        job of each localized push, and at most `GROUPS_AT_ONCE` pushes."""
        templates = template.split(",") if template else ""
        creator = fold_email(by) if "@" in by else by  # people in any case, tokens by their exact names
        wanted = {"app_id": app_id, "status": status, "template_names": templates, "created_by": creator}
        query: Document = {field: value for field, value in wanted.items() if value}
        if failed is not None:
            query |= _FAILED if failed else {"failure": ""}
        query["place"] = {"$gt": place_at(since) if since else ""}
        if ends := [end for end in (before, place_at(until) if until else "") if end]:
            query["place"]["$lt"] = min(ends)
        if grouped:
            return await self._read_grouped(query, before, limit)
        return await read_page(
            self._jobs, query, job_of, order=("place",), direction=DESCENDING, limit=limit, without=_LISTED
        )

    async def find_zones(self, group_ids: Sequence[str]) -> Sequence[Job]:
        return [job_of(each) async for each in self._jobs.find({"group_id": {"$in": list(group_ids)}}, _LISTED)]

    async def _read_grouped(self, query: Document, before: str, limit: int) -> Page[Job]:
        found: Page[Job] = Page()
        earlier = query | {"place": {"$gte": before, "$lt": f"{before.partition('/')[0]}0"}}
        seen = set(await self._jobs.distinct("group_id", earlier)) if before else set()
        groups = 0
        async for document in self._jobs.find(query, _LISTED).sort("place", DESCENDING):
            is_zone = bool(document.get("zone"))
            if is_zone and document["group_id"] in seen:
                continue
            if len(found) == limit or groups == GROUPS_AT_ONCE:
                found.more = True
                break
            seen.add(document["group_id"])
            groups += is_zone
            found.append(job_of(document))
        return found

    async def count_open(self) -> Mapping[JobStatus, int]:
        return {
            status: await self._jobs.count_documents({"open": True, "status": status.value}, limit=COUNTED)
            for status in JobStatus
        }

    async def find_next_starts(self, limit: int) -> Sequence[Job]:
        query = {"open": True, "status": _SCHEDULED.value}
        found = await self._jobs.find(query, _LISTED).sort("starts_at", ASCENDING).limit(limit).to_list()
        return [job_of(document) for document in found]


_BEGUN = sorted(frozenset(JobStatus) - STARTABLE)
_HELD = sorted(RESUMABLE)
_UNHELD = sorted(frozenset(_BEGUN) - RESUMABLE)
_BOUNDS = [f"{256 * shard // SHARDS:02x}" for shard in range(1, SHARDS)]
_MANY = 64


class OpenJobs(Aggregate):
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

    async def find_shards(self) -> set[int]:
        """The shards with unheld jobs, and `SHARDS` plus those with held ones; all if there are many jobs."""
        query = {"open": True, "status": {"$in": _BEGUN}}
        found = await self._jobs.find(query, KEY_FIELDS | {"_id": 0, "status": 1}).limit(_MANY).to_list()
        if len(found) == _MANY:
            return set(range(2 * SHARDS))
        return {
            bisect_right(_BOUNDS, each["incarnation"]) + (SHARDS if each["status"] in _HELD else 0) for each in found
        }

    async def keys_in(self, shard: int, *, held: bool) -> AsyncIterator[str]:
        query = {"open": True, "status": {"$in": _HELD if held else _UNHELD}, "incarnation": _range_of(shard)}
        async for key in self._keys(query):
            yield key

    async def overdue_keys(self, before: datetime) -> AsyncIterator[str]:
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
    begins = {"$gte": _BOUNDS[shard - 1]} if shard else {}
    return begins | ({"$lt": _BOUNDS[shard]} if shard < len(_BOUNDS) else {})


_KEPT = ("kept_since", "personal_since", "ledger_since")


class ClosedJobs(Aggregate):
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
        document = await self._jobs.find_one(one_job(job_id), {"rate_chart": 1}) or {}
        return [RatePoint(at, per_second) for at, per_second in document.get("rate_chart", ())]
