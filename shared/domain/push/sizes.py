"""The size of a job's records, and the number of records in a batch."""

from collections.abc import Mapping
from typing import Any

from shared.domain.jobs.filling import Unrenderable, filled_bytes
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.templates import Template, dumps

# The bytes around a body: keys, ids, the token and the user id.
_ENVELOPE_BYTES = 600
# A batch is rendered as a whole, and several are in flight: large records make small batches.
_BATCH_BYTES = 8_000_000


def fitting_records(job: Job) -> int:
    """The maximum of the job's records in a batch, which is limited in bytes."""
    return max(1, _BATCH_BYTES // largest_record_bytes(job))


def largest_record_bytes(job: Job) -> int:
    """The approximate size of the largest record of the job's templates, with its constant parts and a device's own."""
    bodies = [_body_bytes(template, job.context) for template in job.plan.templates]
    return max(bodies, default=0) + len(dumps(job.metadata).encode()) + _ENVELOPE_BYTES


def _body_bytes(template: Template, context: Mapping[str, Any]) -> int:
    try:
        return filled_bytes(template, context)
    except Unrenderable:
        return 0
