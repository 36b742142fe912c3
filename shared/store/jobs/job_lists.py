"""Lists of jobs over many apps, the newest first, and the overview's figures of jobs.

A job's `place` is its `created_at` and id as text, in sort order, so each list is one range of one index. A job written
by release 0.1.0 has no place: `place_missing` adds it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from pymongo import ASCENDING, DESCENDING, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.accounts.roles import fold_email
from shared.domain.jobs.jobs import STARTABLE, Job, JobStatus
from shared.store.documents import Aggregate, Document, Page, read_page
from shared.store.jobs.job_documents import job_of, place_at, place_of

COUNTED = 100_000
"""The number at which counting ends."""

GROUPS_AT_ONCE = 50
"""Maximum localized pushes on a page: each has a job for some forty zones."""

_LISTED = {"plan.templates": 0, "context": 0}
_STEP = 1_000
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
    """Reads the `jobs` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        """Make the indexes, and give every job its place."""
        for fields in _INDEXES:
            await self._jobs.create_index([(field, ASCENDING) for field in fields])
        for keys in _INDEXES_OF_FAILED:
            await self._jobs.create_index(keys, partialFilterExpression=_FAILED)
        while await self.place_missing(_STEP) == _STEP:
            pass

    async def place_missing(self, limit: int) -> int:
        """Give up to `limit` jobs without a place theirs; returns the number."""
        found = await self._jobs.find({"place": None}, {"created_at": 1}).limit(limit).to_list()
        if found:
            await self._jobs.bulk_write(
                [UpdateOne({"_id": each["_id"]}, {"$set": {"place": place_of(each)}}) for each in found],
                ordered=False,
            )
        return len(found)

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
            query |= _FAILED if failed else {"failure": {"$in": ["", None]}}
        # Jobs without a place are left out.
        query["place"] = {"$gt": place_at(since) if since else ""}
        if ends := [end for end in (before, place_at(until) if until else "") if end]:
            query["place"]["$lt"] = min(ends)
        if grouped:
            return await self._read_grouped(query, before, limit)
        return await read_page(
            self._jobs, query, job_of, order=("place",), direction=DESCENDING, limit=limit, without=_LISTED
        )

    async def find_zones(self, group_ids: Sequence[str]) -> Sequence[Job]:
        """The jobs of these groups, without their contexts."""
        return [job_of(each) async for each in self._jobs.find({"group_id": {"$in": list(group_ids)}}, _LISTED)]

    async def _read_grouped(self, query: Document, before: str, limit: int) -> Page[Job]:
        """The zones of a push are made at one instant, so only the push at `before` may have zones on an earlier
        page."""
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
        """The number of open jobs in each status, up to `COUNTED`."""
        return {
            status: await self._jobs.count_documents({"open": True, "status": status.value}, limit=COUNTED)
            for status in JobStatus
        }

    async def find_next_starts(self, limit: int) -> Sequence[Job]:
        """The jobs that start next, the earliest first, without their contexts."""
        query = {"open": True, "status": _SCHEDULED.value}
        found = await self._jobs.find(query, _LISTED).sort("starts_at", ASCENDING).limit(limit).to_list()
        return [job_of(document) for document in found]
