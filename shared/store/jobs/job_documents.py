"""The document of a job."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection

from shared.domain.instants import ns
from shared.domain.jobs.jobs import Job, JobStatus, Standing, job_key, split_key
from shared.domain.jobs.templates import Template, check_copies
from shared.runtime.tracing import current_trace
from shared.store.documents import Codec, Document

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
    return job_key(document[id_field], document.get("incarnation", ""))


def document_of(job: Job) -> Document:
    """The document of a new job, without feedback, with the trace of the present request."""
    document = _codec.document(job)
    document["place"] = place_of(document)
    document["trace"] = job.trace or current_trace()
    if not document["trace"]:
        del document["trace"]
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
    """The job, with the templates if they were read."""
    plan = dict(document["plan"])
    plan["templates"] = [_templates.value(template) for template in plan.get("templates", ())]
    feedbacks = {unescape_key(key): count for key, count in document["feedbacks"].items()}
    events = [{"by": None} | event for event in document.get("events", ())]
    return _codec.value({**document, "plan": plan, "feedbacks": feedbacks, "events": events})


def standing_of(document: Document) -> Standing:
    """The fields of a job that decide about its batches."""
    return Standing(
        JobStatus(document["status"]),
        document["plan"]["end"],
        document["expires_at"],
        document["service"],
        document.get("credential_id", ""),
        document.get("reopening", False),
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
    """The job's feedback as fields."""
    return {escape_key(outcome): count for outcome, count in job.feedbacks.items()}


def escape_key(key: str) -> str:
    """A feedback outcome as a field name: dots, dollars and NUL have a meaning in MongoDB."""
    return key.replace("%", "%25").replace(".", "%2E").replace("$", "%24").replace("\0", "%00")


def unescape_key(key: str) -> str:
    """The inverse of `escape_key`."""
    return key.replace("%00", "\0").replace("%24", "$").replace("%2E", ".").replace("%25", "%")
