"""Jobs: one document each. Upkeep finds `open` ones by an index. Jobs that wait for their start may be many, and are
not read before they are due.

A `job_id` is either a job's id, for the job that has it now, or its key, for one job among all that ever had its
id. Background work uses keys. Each change of a job is a compare-and-set that also stores its events, a due mail and
a milestone for the audit: these exist exactly if the change does.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from shared.audience.rules.audiences import Source
from shared.core.documents import sources
from shared.core.errors import Conflict
from shared.core.instants import ns
from shared.drivers.mongo.documents import (
    BATCH,
    BSON_TYPES,
    Aggregate,
    Codec,
    Document,
    insert_new,
    json_text,
    translate_errors,
)
from shared.jobs.rules.batches import Receipt, Totals
from shared.jobs.rules.events import DueMail, Event, Milestone
from shared.jobs.rules.jobs import TRANSITIONS, Job, JobStatus, Standing, job_key, split_key
from shared.jobs.rules.templates import Template, check_copies
from shared.runtime.tracing import current_trace

_codec = Codec(Job, json=("filters", "context", "metadata", "reasons", "locales", "options"), derived=("counts_only",))
_templates = Codec(Template, json=("body", "defaults"))
KEY_FIELDS = {"incarnation": 1}
"""The fields for `key_of`, besides the id."""
STANDING_FIELDS = KEY_FIELDS | dict.fromkeys(
    ("status", "plan.end", "expires_at", "service", "credential_id", "reopening"), 1
)
"""The fields for `standing_of`."""


def one_job(job_id: str) -> Document:
    """The query for the job of a key; for a bare id, the job that has it now."""
    plain, incarnation = split_key(job_id)
    return {"_id": plain, "incarnation": incarnation} if incarnation else {"_id": plain}


def any_job(job_ids: Sequence[str]) -> Document:
    """The query for updates of the jobs of these keys and bare ids, as for `one_job`."""
    queries = [one_job(job_id) for job_id in job_ids]
    bare = [query["_id"] for query in queries if len(query) == 1]
    return {"$or": [{"_id": {"$in": bare}}, *(query for query in queries if len(query) > 1)]}


async def read_any_job(
    jobs: AsyncCollection[Document], job_ids: Sequence[str], shown: Document, **options: Any
) -> AsyncIterator[Document]:
    """Read the jobs of these keys and bare ids, as for `one_job`. One query by id; incarnations are compared here."""
    wanted, ids = set(job_ids), [split_key(job_id)[0] for job_id in job_ids]
    async for document in jobs.find({"_id": {"$in": ids}}, shown, **options):
        if document["_id"] in wanted or key_of(document) in wanted:
            yield document


def key_of(document: Document, id_field: str = "_id") -> str:
    """The key of the job, or of the thing that `id_field` names."""
    return job_key(document[id_field], document["incarnation"])


def document_of(job: Job) -> Document:
    """The document of a new job, without feedback, with the trace of the present request."""
    document = _codec.document(job)
    document["place"] = place_of(document)
    document["trace"] = job.trace or current_trace()
    for name in ("trace", "schedule"):
        if not document[name]:
            del document[name]
    if job.mails:
        document["mail_since"] = job.created_at
    document["plan"]["templates"] = [_templates.document(template) for template in job.plan.templates]
    document["feedbacks"] = {}
    if job.idempotency is None:
        del document["idempotency"]
    else:
        document["idempotency"]["created_at"] = job.created_at
    return document


def job_of(document: Document) -> Job:
    plan = dict(document["plan"])
    plan["templates"] = [_templates.value(template) for template in plan.get("templates", ())]
    feedbacks = {unescape_key(key): count for key, count in document["feedbacks"].items()}
    return _codec.value({**document, "plan": plan, "feedbacks": feedbacks})


def standing_of(document: Document) -> Standing:
    """The fields of a job that decide about its batches."""
    return Standing(
        JobStatus(document["status"]),
        document["plan"]["end"],
        document["expires_at"],
        document["service"],
        document["credential_id"],
        document["reopening"],
    )


def place_of(document: Document) -> str:
    """The job's place among all jobs by age, then id: the age has a fixed length, so texts sort like numbers."""
    return f"{document['created_at']:019}/{document['_id']}"


def place_at(instant: datetime) -> str:
    """The place of the first job made at this instant or later."""
    return f"{ns(instant):019}"


def place_of_job(job: Job) -> str:
    """The job's place, as `place_of` its document."""
    return place_of({"_id": job.id, "created_at": job.created_at})


def copies_of(templates: Sequence[Template]) -> list[Document]:
    """A job's copies of its templates. Raises `Invalid` if they are too large together."""
    copies = [_templates.document(template) for template in templates]
    check_copies(sum(len(copy[field].encode()) for copy in copies for field in _templates.json))
    return copies


def counts_of(job: Job) -> dict[str, int]:
    return {escape_key(outcome): count for outcome, count in job.feedbacks.items()}


def escape_key(key: str) -> str:
    """A feedback outcome as a field name: dots, dollars and NUL have a meaning in MongoDB."""
    return key.replace("%", "%25").replace(".", "%2E").replace("$", "%24").replace("\0", "%00")


def unescape_key(key: str) -> str:
    return key.replace("%00", "\0").replace("%24", "$").replace("%2E", ".").replace("%25", "%")


VIEW = {"plan.templates": 0}
NOW = {"changed_at": True}
_EVENTS = 100  # the last ones of a job that is paused and resumed all day


async def change_job(
    jobs: AsyncCollection[Document],
    query: Document,
    fields: Document,
    *,
    shown: Document | None = VIEW,
    dated: Document = NOW,
    events: Sequence[Event] = (),
    mail: DueMail | None = None,
    milestone: Milestone | None = None,
) -> Job | None:
    """The changed job; `None` if none matches. Fields that are `dated` get the database's time."""
    change = _change(fields, dated, events, mail, milestone)
    found = await jobs.find_one_and_update(query, change, projection=shown, return_document=ReturnDocument.AFTER)
    return None if found is None else job_of(found)


async def change_unread_job(
    jobs: AsyncCollection[Document], query: Document, fields: Document, *, events: Sequence[Event]
) -> bool:
    """As `change_job`, without reading the job: `False` if none matches. For an answer MongoDB would copy the whole
    document, with its copies of templates."""
    changed = await jobs.update_one(query, _change(fields, NOW, events))
    return changed.matched_count == 1


def _change(
    fields: Document,
    dated: Document,
    events: Sequence[Event],
    mail: DueMail | None = None,
    milestone: Milestone | None = None,
) -> Document:
    chosen, pushed = dict(fields), {}
    if events:
        pushed["events"] = {"$each": [msgspec.to_builtins(event) for event in events], "$slice": -_EVENTS}
    if mail is not None:
        pushed["mails"] = msgspec.to_builtins(mail)
        chosen["mail_since"] = mail.at
    if milestone is not None:
        pushed["milestones"] = msgspec.to_builtins(milestone, builtin_types=BSON_TYPES)
        dated = dated | {"milestone_since": True}
    parts = {"$currentDate": dated, "$set": chosen, "$push": pushed}
    return {operator: part for operator, part in parts.items() if part}


_LISTED = VIEW | {"context": 0}


class Jobs(Aggregate):
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
        found = read_any_job(self._jobs, job_ids, VIEW if context else _LISTED, batch_size=BATCH)
        return {document["_id"]: job_of(document) async for document in found}

    async def get(self, job_id: str) -> Job | None:
        return _job_or_none(await self._jobs.find_one(one_job(job_id)))

    async def view(self, job_id: str) -> Job | None:
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
            query["forgiven"] = still_forgiven
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
        query = one_job(job_id) | {"open": True, "round": round}
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
