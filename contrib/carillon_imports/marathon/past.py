"""Marathon's jobs as Carillon's: ended ones become history, and those whose start lies ahead will start. Pure.

Marathon's status alone does not distinguish them: it is empty while a job waits or runs and after it has completed, a
completed job can be paused, and an expired one is never completed.
"""

from enum import Enum
from typing import Any, assert_never

from carillon_imports.marathon.mapping import read_json
from carillon_imports.marathon.source import JobRow
from shared.domain.errors import Conflict, Invalid
from shared.domain.jobs.jobs import Job, JobStatus
from shared.domain.jobs.templates import check_json
from shared.domain.jobs.totals import Totals
from shared.domain.push.feedback import MAX_OUTCOME_CHARACTERS, admit_outcomes
from shared.domain.push.records import SERVICES

MAX_OUTCOMES = 100
EXPIRED = "expired at Marathon before it was completed"
_MARATHON = frozenset({"", "paused", "stopped", "circuitbreak"})


class PastStanding(Enum):
    """The standing of a job at Marathon. The last four have not ended; the text is the reason against importing such a
    job as history."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    EXPIRED = "expired"
    LOCALIZED = (
        "one zone of a localized job that has not ended: let it end there, or stop its jobs there and post it here"
    )
    HELD = "paused or broken off there: resume it and let it end, or stop it there; then import again"
    WAITS = "starts in the future there: --scheduled brings it as a job that starts here, or let it run there"
    RUNS = "has not ended there: let it end, or stop it there; then import again"


def past_standing(row: JobRow, now_ns: int) -> PastStanding:
    """The job's standing at this moment (ns). Raises `Invalid` for a status that Marathon does not have."""
    if row.status not in _MARATHON:
        raise Invalid("invalid status: Marathon has no such", field="status", value=row.status)
    if row.status == "stopped":
        return PastStanding.STOPPED
    if row.completed_at:
        return PastStanding.COMPLETED
    if 0 < row.expires_at <= now_ns:
        return PastStanding.EXPIRED
    if row.localized:
        return PastStanding.LOCALIZED
    if row.status:
        return PastStanding.HELD
    return PastStanding.WAITS if row.starts_at > now_ns else PastStanding.RUNS


def read_job(row: JobRow, app_name: str, *, now_ns: int, scheduled: bool) -> Job:
    """The job: closed, or with `scheduled` waiting for its start.

    Raises:
        Conflict: it has not ended; the reason contains advice.
        Invalid: a field cannot be stored here.
    """
    stands = past_standing(row, now_ns)
    match stands:
        case PastStanding.COMPLETED:
            return _past(row, app_name, JobStatus.COMPLETED)
        case PastStanding.STOPPED:
            return _past(row, app_name, JobStatus.STOPPED)
        case PastStanding.EXPIRED:
            return _past(row, app_name, JobStatus.STOPPED, failure=EXPIRED)
        case PastStanding.WAITS if scheduled:
            return _job(row, app_name, status=JobStatus.SCHEDULED)
        case PastStanding.WAITS | PastStanding.LOCALIZED | PastStanding.HELD | PastStanding.RUNS:
            raise Conflict(stands.value, field="status")
        case _:
            assert_never(stands)


def _past(row: JobRow, app_name: str, status: JobStatus, *, failure: str = "") -> Job:
    """An ended job. Marathon does not distinguish sent from held out or failed, so everything done counts as sent."""
    totals = Totals(
        batches=row.total_batches,
        settled=row.completed_batches,
        planned=row.total_tokens,
        sent=row.completed_tokens,
    )
    return _job(
        row,
        app_name,
        status=status,
        open=False,
        totals=totals,
        completed_at=row.completed_at,
        control_group_csv_path=row.control_group_csv_path,
        feedbacks=_feedbacks(row),
        failure=failure,
    )


def _job(row: JobRow, app_name: str, *, status: JobStatus, **more: Any) -> Job:
    if not 0 <= row.control_group < 1:
        raise Invalid("invalid controlGroup: it must be at least 0 and less than 1", field="controlGroup")
    return Job(
        id=row.id,
        app_id=row.app_id,
        app_name=app_name,
        service=_service(row.service),
        template_names=tuple(row.template_name.split(",")),
        created_by=row.created_by,
        group_id=row.job_group_id,
        status=status,
        filters=_filters(row),
        context=_checked_json("context", row.context),
        metadata=_checked_json("metadata", row.metadata),
        past_time_strategy=row.past_time_strategy,
        csv_path=row.csv_path,
        control_group=row.control_group,
        localized=row.localized,
        expires_at=row.expires_at,
        starts_at=row.starts_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
        **more,
    )


def _service(name: str) -> str:
    if name not in SERVICES:
        raise Invalid("invalid service: none of ours", field="service", value=name)
    return name


def _checked_json(field: str, text: str | None) -> dict[str, Any]:
    value = read_json(field, text)
    check_json(field, value)
    return value


def _filters(row: JobRow) -> dict[str, str]:
    filters = _checked_json("filters", row.filters)
    if not all(isinstance(value, str) for value in filters.values()):
        raise Invalid("invalid filters: every value must be a string", field="filters")
    return filters


def _feedbacks(row: JobRow) -> dict[str, int]:
    """The counts by outcome, within the limits for the number of outcomes and the length of their names."""
    counts: dict[str, int] = {}
    for outcome, count in _checked_json("feedbacks", row.feedbacks).items():
        if isinstance(count, bool) or not isinstance(count, int):
            raise Invalid("invalid feedbacks: every count must be an integer", field="feedbacks")
        name = outcome[:MAX_OUTCOME_CHARACTERS] or "other"
        counts[name] = counts.get(name, 0) + count
    return admit_outcomes((), counts, MAX_OUTCOMES)
