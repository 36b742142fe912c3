"""Jobs: one document each. `open` ones are indexed; that is where upkeep looks. Those that wait for their start may be
many, and none of them is read before it is due.

A `job_id` is a job's id, whichever job has it now, or its key, which means that one job and no other that had its id
before or has it since. Whoever works in the background goes by keys.

A job's copies of its templates may be megabytes, and only whoever plans or renders it needs them: `get` and
`begin_plan` answer with them, everything else without (`plan.templates` is empty). A context may have a megabyte: many
jobs at once are read without (it is empty).
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.audience.sources import Source
from shared.domain.errors import Conflict
from shared.domain.instants import ns
from shared.domain.jobs.batches import Receipt
from shared.domain.jobs.events import DueMail, Event, Milestone
from shared.domain.jobs.jobs import STARTABLE, TRANSITIONS, Job, JobStatus, Standing, split_key
from shared.domain.jobs.templates import Template
from shared.domain.jobs.totals import Totals
from shared.domain.transitions import sources
from shared.store.documents import BATCH, Document, Page, free_keys, insert_new, json_text, read_page, translate_errors
from shared.store.jobs.job_changes import NOW, VIEW, change_job
from shared.store.jobs.job_documents import KEY_FIELDS, any_job, copies_of, document_of, job_of, key_of, one_job

_STANDING = dict.fromkeys(("status", "plan.end", "expires_at", "service", "credential_id", "reopening"), 1) | KEY_FIELDS
_LISTED = VIEW | {"context": 0}
_BEGUN = sorted(frozenset(JobStatus) - STARTABLE)
(_SCHEDULED,) = STARTABLE


class Jobs:
    """The `jobs` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._jobs.create_index([("app_id", ASCENDING), ("created_at", ASCENDING), ("_id", ASCENDING)])
        await self._jobs.create_index([("open", ASCENDING), ("status", ASCENDING), ("starts_at", ASCENDING)])
        await self._jobs.create_index([("group_id", ASCENDING)])
        await self._jobs.create_index([("idempotency.key", ASCENDING)], unique=True, sparse=True)
        await self._jobs.create_index([("idempotency.created_at", ASCENDING)], sparse=True)

    async def add(self, job: Job) -> None:
        """Insert a job.

        Raises:
            Conflict: its id or its idempotency key is taken.
        """
        with translate_errors(duplicate=lambda: Conflict("a job with this id or idempotency key exists", field="id")):
            await self._jobs.insert_one(document_of(job))

    async def add_missing(self, jobs: Sequence[Job]) -> None:
        """Insert those that are not there."""
        await insert_new(self._jobs, [document_of(job) for job in jobs])

    async def with_ids(self, job_ids: Sequence[str], *, context: bool = False) -> dict[str, Job]:
        """Those of these jobs that there are, whatever their apps, by id; with their contexts only if asked for."""
        with translate_errors():
            found = self._jobs.find(any_job(job_ids), VIEW if context else _LISTED, batch_size=BATCH)
            return {document["_id"]: job_of(document) async for document in found}

    async def with_file_plans(self, plan_ids: Sequence[str]) -> set[str]:
        """Which of these keys of file plans are those of a job, or of a group that has jobs."""
        ids = [split_key(plan_id)[0] for plan_id in plan_ids]
        shown = {"incarnation": 1, "group_id": 1}
        with translate_errors():
            alone = {key_of(document) async for document in self._jobs.find({"_id": {"$in": ids}}, shown)}
            grouped = self._jobs.find({"group_id": {"$in": ids}}, shown)
            return alone | {key_of(document, "group_id") async for document in grouped}

    async def get(self, job_id: str) -> Job | None:
        """The whole job, whatever its app, with its copies of the templates."""
        with translate_errors():
            return _job_or_none(await self._jobs.find_one(one_job(job_id)))

    async def view(self, job_id: str) -> Job | None:
        """The job, whatever its app."""
        with translate_errors():
            return _job_or_none(await self._jobs.find_one(one_job(job_id), VIEW))

    async def with_key(self, key: str) -> Job | None:
        """The job that was made with this idempotency key."""
        with translate_errors():
            return _job_or_none(await self._jobs.find_one({"idempotency.key": key}, VIEW))

    async def page(
        self, app_id: str, *, template: str = "", after: tuple[int, str] | None = None, limit: int
    ) -> Page[Job]:
        """An app's jobs by age, the oldest first, behind the position (`created_at`, id), without their contexts.
        `template` is a job's names as they were given, joined by commas."""
        query: dict[str, Any] = {"app_id": app_id}
        if template:
            query["template_names"] = template.split(",")
        if after is not None:
            created_at, job_id = after
            query["$or"] = [{"created_at": {"$gt": created_at}}, {"created_at": created_at, "_id": {"$gt": job_id}}]
        order = ("created_at", "_id")
        return await read_page(self._jobs, query, job_of, order=order, limit=limit, without=_LISTED)

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

    async def expire_keys(self, before: datetime, *, limit: int) -> int:
        """Free the idempotency keys of some jobs that were made before then; of how many."""
        return await free_keys(self._jobs, before, limit)

    async def withdraw(self, job_id: str) -> bool:
        """Forget a job that nobody has begun to plan, of which nothing can have been sent; `False` when there is no
        such."""
        with translate_errors():
            result = await self._jobs.delete_one(one_job(job_id) | {"plan.source": None, "open": True})
        return result.deleted_count == 1

    async def get_standing(self, job_id: str) -> Standing | None:
        """What decides about the job's batches, without its templates."""
        with translate_errors():
            document = await self._jobs.find_one(one_job(job_id), _STANDING)
        return None if document is None else _standing_of(document)

    async def get_standings(self, job_ids: Sequence[str]) -> dict[str, Standing]:
        """What decides about the batches of those of these jobs that there are, by their keys."""
        with translate_errors():
            found = self._jobs.find(any_job(job_ids), _STANDING)
            return {key_of(document): _standing_of(document) async for document in found}

    async def move(
        self,
        job_id: str,
        *,
        to: JobStatus,
        only: frozenset[JobStatus],
        at: int,
        failure: str = "",
        completed_at: int = 0,
        forgiven: int | None = None,
        still_forgiven: int | None = None,
        events: Sequence[Event] = (),
        mail: DueMail | None = None,
        milestone: Milestone | None = None,
    ) -> Job | None:
        """Give the job this status if its present one is among `only` and may be followed by it; `at` becomes
        `updated_at` (ns). With `still_forgiven`, only if so many batches are forgiven: nobody has resumed it since."""
        change: Document = {"status": to.value, "updated_at": at}
        change |= {"failure": failure} if failure else {}
        change |= {"completed_at": completed_at} if completed_at else {}
        change |= {} if forgiven is None else {"forgiven": forgiven}
        query = one_job(job_id) | {"status": {"$in": sorted(only & sources(TRANSITIONS, to))}}
        if still_forgiven is not None:
            # A job of the first version has no such field.
            query["forgiven"] = still_forgiven or {"$in": [0, None]}
        return await change_job(self._jobs, query, change, events=events, mail=mail, milestone=milestone)

    async def begin_plan(
        self, job_id: str, *, source: Source, templates: tuple[Template, ...], events: Sequence[Event] = ()
    ) -> Job | None:
        """Fix what the plan is made of, once: the whole job; `None` when that was done before.

        Raises:
            Invalid: the templates have grown too large since the job was made.
        """
        copies = copies_of(templates)
        fixed = {"plan.source": msgspec.to_builtins(source), "plan.templates": copies}
        return await change_job(self._jobs, one_job(job_id) | {"plan.source": None}, fixed, shown=None, events=events)

    async def end_plan(self, job_id: str, *, end: int, unknown: int = 0, events: Sequence[Event] = ()) -> Job | None:
        """Note that the plan has `end` batches, and found so many unknown users; `None` when that was noted before."""
        fixed = {"plan.end": end, "plan.unknown": unknown}
        return await change_job(self._jobs, one_job(job_id) | {"plan.end": None}, fixed, events=events)

    async def touch(self, job_id: str) -> None:
        """Note that somebody works at the job's plan now."""
        with translate_errors():
            await self._jobs.update_one(one_job(job_id), {"$currentDate": NOW})

    async def close(
        self,
        job_id: str,
        *,
        totals: Totals,
        summed: Receipt,
        completed_at: int,
        round: int = 0,  # noqa: A002 - the field
        control_group_csv_path: str = "",
        events: Sequence[Event] = (),
        failures: Sequence[Event] = (),
        mail: DueMail | None = None,
        milestone: Milestone | None = None,
    ) -> Job | None:
        """Write the final sums and close the job: a running one is completed at this time, with these events, this mail
        and this milestone, a stopped one stays stopped; `failures` are events of either. `None` when it was closed
        before, was taken up again since this `round`, or may not be closed now."""
        sums = {
            "open": False,
            "totals": msgspec.to_builtins(totals),
            "reasons": json_text(summed.reasons),
            "locales": json_text(summed.locales),
            "control_group_csv_path": control_group_csv_path,
        }
        completed = {"status": JobStatus.COMPLETED.value, "completed_at": completed_at}
        query = one_job(job_id) | {"open": True, "round": round or {"$in": [0, None]}}
        dated = NOW | {"kept_since": True}
        runs = {"status": {"$in": sorted(sources(TRANSITIONS, JobStatus.COMPLETED))}}
        ended = await change_job(
            self._jobs,
            query | runs,
            sums | completed,
            dated=dated,
            events=[*events, *failures],
            mail=mail,
            milestone=milestone,
        )
        stopped = query | {"status": JobStatus.STOPPED.value}
        return ended or await change_job(self._jobs, stopped, sums, dated=dated, events=failures)

    async def note_first(self, job_id: str, event: Event) -> None:
        """Add an event to an open job, unless it has one of that stage and state."""
        same = {"$elemMatch": {"stage": event.stage, "state": event.state.value}}
        await change_job(self._jobs, one_job(job_id) | {"open": True, "events": {"$not": same}}, {}, events=[event])

    async def _keys(self, query: Document) -> AsyncIterator[str]:
        with translate_errors():
            async for document in self._jobs.find(query, KEY_FIELDS):
                yield key_of(document)


def _standing_of(document: Document) -> Standing:
    return Standing(
        JobStatus(document["status"]),
        document["plan"]["end"],
        document["expires_at"],
        document["service"],
        document.get("credential_id", ""),
        document.get("reopening", False),
    )


def _job_or_none(document: Document | None) -> Job | None:
    return None if document is None else job_of(document)
