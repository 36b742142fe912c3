"""Jobs: one document each. Upkeep finds `open` ones by an index. Jobs that wait for their start may be many, and are
not read before they are due.

A `job_id` is either a job's id, for the job that has it now, or its key, for one job among all that ever had its id.
Background work uses keys.

A job's copies of its templates may be megabytes, and only planning and rendering need them: `get` and `begin_plan`
return them, all other methods return an empty `plan.templates`. A context may have a megabyte: reads of many jobs leave
it empty.
"""

from collections.abc import Sequence

import msgspec
from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.audience.sources import Source
from shared.domain.errors import Conflict
from shared.domain.jobs.batches import Receipt
from shared.domain.jobs.events import DueMail, Event, Milestone
from shared.domain.jobs.jobs import TRANSITIONS, Job, JobStatus, Standing
from shared.domain.jobs.templates import Template
from shared.domain.jobs.totals import Totals
from shared.domain.transitions import sources
from shared.store.documents import BATCH, Aggregate, Document, insert_new, json_text, translate_errors
from shared.store.jobs.job_changes import NOW, VIEW, change_job, change_unread_job
from shared.store.jobs.job_documents import (
    STANDING_FIELDS,
    copies_of,
    document_of,
    job_of,
    one_job,
    read_any_job,
    standing_of,
)

_LISTED = VIEW | {"context": 0}


class Jobs(Aggregate):
    """The `jobs` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        await self._jobs.create_index([("app_id", ASCENDING), ("created_at", ASCENDING), ("_id", ASCENDING)])
        await self._jobs.create_index([("open", ASCENDING), ("status", ASCENDING), ("starts_at", ASCENDING)])
        await self._jobs.create_index([("group_id", ASCENDING)])
        await self._jobs.create_index([("idempotency.key", ASCENDING)], unique=True, sparse=True)
        await self._jobs.create_index([("idempotency.created_at", ASCENDING)], sparse=True)

    async def add(self, job: Job) -> None:
        with translate_errors(duplicate=lambda: Conflict("a job with this id or idempotency key exists", field="id")):
            await self._jobs.insert_one(document_of(job))

    async def add_missing(self, jobs: Sequence[Job]) -> None:
        await insert_new(self._jobs, [document_of(job) for job in jobs])

    async def with_ids(self, job_ids: Sequence[str], *, context: bool = False) -> dict[str, Job]:
        """The existing jobs of any app, by id; with their contexts only if asked for."""
        found = read_any_job(self._jobs, job_ids, VIEW if context else _LISTED, batch_size=BATCH)
        return {document["_id"]: job_of(document) async for document in found}

    async def get(self, job_id: str) -> Job | None:
        """The whole job of any app, with its copies of the templates."""
        return _job_or_none(await self._jobs.find_one(one_job(job_id)))

    async def view(self, job_id: str) -> Job | None:
        """The job, without templates."""
        return _job_or_none(await self._jobs.find_one(one_job(job_id), VIEW))

    async def with_key(self, key: str) -> Job | None:
        return _job_or_none(await self._jobs.find_one({"idempotency.key": key}, VIEW))

    async def get_standing(self, job_id: str) -> Standing | None:
        document = await self._jobs.find_one(one_job(job_id), STANDING_FIELDS)
        return None if document is None else standing_of(document)

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
        """Give the job this status if its present one is among `only` and allows it; `at` becomes `updated_at`
        (ns). With `still_forgiven`, only if that many batches are forgiven, which means that the job was not
        resumed since."""
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
        """Fix the source and templates of the plan, once: the whole job; `None` if that was done before. Raises
        `Invalid` if the templates have grown too large since the job was made."""
        copies = copies_of(templates)
        fixed = {"plan.source": msgspec.to_builtins(source), "plan.templates": copies}
        return await change_job(self._jobs, one_job(job_id) | {"plan.source": None}, fixed, shown=None, events=events)

    async def end_plan(self, job_id: str, *, end: int, unknown: int = 0, events: Sequence[Event] = ()) -> bool:
        """Record that the plan has `end` batches and `unknown` unknown users; `False` if it had ended before."""
        fixed = {"plan.end": end, "plan.unknown": unknown}
        return await change_unread_job(self._jobs, one_job(job_id) | {"plan.end": None}, fixed, events=events)

    async def touch(self, job_id: str) -> None:
        """Record that a planner works at the job's plan now."""
        await self._jobs.update_one(one_job(job_id), {"$currentDate": NOW})

    async def close(
        self,
        job_id: str,
        *,
        totals: Totals,
        summed: Receipt,
        completed_at: int,
        expired: str = "",
        round: int = 0,  # noqa: A002 - the field
        control_group_csv_path: str = "",
        events: Sequence[Event] = (),
        failures: Sequence[Event] = (),
        mail: DueMail | None = None,
        milestone: Milestone | None = None,
    ) -> Job | None:
        """Write the final sums and close the job. A running job is completed at `completed_at`, with these events, mail
        and milestone, and `expired` as its failure; a stopped one stays stopped. `failures` are events of either.
        `None` if it was closed before, was reopened since `round`, or may not be closed now."""
        sums = {
            "open": False,
            "totals": msgspec.to_builtins(totals),
            "reasons": json_text(summed.reasons),
            "locales": json_text(summed.locales),
            "control_group_csv_path": control_group_csv_path,
        }
        completed = {"status": JobStatus.COMPLETED.value, "completed_at": completed_at, "failure": expired}
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
        query = one_job(job_id) | {"open": True, "events": {"$not": same}}
        await change_unread_job(self._jobs, query, {}, events=[event])


def _job_or_none(document: Document | None) -> Job | None:
    return None if document is None else job_of(document)
