"""Outcomes of recipients: those that get nothing, and the counts of all.

Outcomes are counted for a whole batch, once it is settled: one settlement covers up to ten thousand recipients.
"""

from collections.abc import Iterator

from services.worker.push.recipients import GONE
from shared.domain.jobs.batches import OTHER, Batch, BatchPart, Receipt
from shared.domain.jobs.jobs import Job
from shared.domain.push.rendering import NO_TOKEN
from shared.runtime.metrics import BATCHES_SETTLED, JOB_START_DELAY, RECIPIENTS, RECORDS_SENT

# Why a batch failed, or the rest of it. `HOPELESS`: no take of it ever sent anything.
OUTCOME_UNKNOWN, UNREADABLE, REFUSED, FAULT, HOPELESS = "outcome-unknown", "unreadable", "refused", "fault", "not-taken"
_SKIPS = frozenset({NO_TOKEN, GONE})


def rest_failed(batch: Batch, key: str, at_least: int = 0) -> Receipt:
    """The receipt of the batch if all the rest of it fails."""
    failed = max(batch.recipients_left, at_least)
    return batch.receipt + Receipt(failed=failed, reasons={key: failed})


def count_part(job: Job, batch: Batch, part: BatchPart, records: int, now: int) -> None:
    """Count the records of a part whose commit was seen at `now` (ns). The plan's first batch shows how late the job
    began."""
    RECORDS_SENT.labels(job.app_name, job.service).inc(records)
    if batch.ordinal == 0 and part.number == 1:
        JOB_START_DELAY.observe(max(now - max(job.created_at, job.starts_at), 0) / 1e9)


def count_settled(job: Job | None, batch: Batch) -> None:
    """Count a settled batch and its recipients; for a job that is gone, under no app."""
    BATCHES_SETTLED.labels(batch.status).inc()
    app, service = (job.app_name, job.service) if job is not None else ("", "")
    for outcome, reason, count in _outcomes(batch.receipt):
        if count > 0:
            RECIPIENTS.labels(app, service, outcome, reason).inc(count)


def _outcomes(receipt: Receipt) -> Iterator[tuple[str, str, int]]:
    """Outcome, reason and count. A receipt without room for all reasons has fewer of them than recipients."""
    yield "sent", "", receipt.sent
    yield "held_out", "", receipt.held_out
    yield "unknown", "", receipt.unknown
    skips = {key: count for key, count in receipt.reasons.items() if key in _SKIPS}
    faults = {key: count for key, count in receipt.reasons.items() if key not in _SKIPS}
    for outcome, total, reasons in (("skipped", receipt.skipped, skips), ("failed", receipt.failed, faults)):
        named = {OTHER: 0} | reasons
        named[OTHER] += total - sum(reasons.values())
        for reason, count in named.items():
            yield outcome, reason, count
