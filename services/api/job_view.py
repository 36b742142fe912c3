"""A job as clients see it: Marathon's fields with its types, and beside them the parts that the sums are made of."""

from typing import Any

from msgspec import Struct

from services.api.apps import AppView, app_view
from shared.domain.accounts import App
from shared.domain.jobs import Job, JobStatus, Totals

# A job that waits, runs or is completed has the empty status; `completedAt` tells the last of them apart.
STATUS: dict[JobStatus, str] = {
    JobStatus.SCHEDULED: "",
    JobStatus.RUNNING: "",
    JobStatus.PAUSED: "paused",
    JobStatus.TRIPPED: "circuitbreak",
    JobStatus.STOPPED: "stopped",
    JobStatus.COMPLETED: "",
}


class JobEvent(Struct, frozen=True, kw_only=True):
    """One step of a stage."""

    id: str
    message: str
    statusID: str  # noqa: N815 - Marathon's spelling
    state: str
    createdAt: int  # noqa: N815


class StatusEvent(Struct, frozen=True, kw_only=True):
    """One stage of a job."""

    id: str
    name: str
    jobID: str  # noqa: N815 - Marathon's spelling
    createdAt: int  # noqa: N815
    events: list[JobEvent]


class JobView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A job. Times in nanoseconds since the epoch, 0 and `""` where unset; a recipient is a device.

    `completedTokens` = `sent` + `failed` + `skipped` + `heldOut`. `reasons` tells failed and skipped ones apart by
    why, `locales` counts what was sent; both are there once the job has ended. `failure` says what stopped a job that
    no user stopped.
    """

    id: str
    total_batches: int
    completed_batches: int
    control_group: float
    total_users: int
    total_tokens: int
    completed_tokens: int
    sent: int
    failed: int
    skipped: int
    held_out: int
    reasons: dict[str, int]
    locales: dict[str, int]
    failure: str
    db_page_size: int
    localized: bool
    completed_at: int
    expires_at: int
    starts_at: int
    context: dict[str, Any]
    service: str
    filters: dict[str, str]
    metadata: dict[str, Any]
    csv_path: str
    control_group_csv_path: str
    created_by: str
    app: AppView
    app_id: str
    job_group_id: str
    template_name: str
    past_time_strategy: str
    status: str
    feedbacks: dict[str, int]
    created_at: int
    updated_at: int
    status_events: list[StatusEvent] | None


def job_view(job: Job, app: App, totals: Totals) -> JobView:
    """A job of an app, with its sums as they stand."""
    return JobView(
        id=job.id,
        total_batches=totals.batches,
        completed_batches=totals.settled,
        control_group=job.control_group,
        total_users=totals.planned,
        total_tokens=totals.planned,
        completed_tokens=totals.done,
        sent=totals.sent,
        failed=totals.failed,
        skipped=totals.skipped,
        held_out=totals.held_out,
        reasons=job.reasons,
        locales=job.locales,
        failure=job.failure,
        db_page_size=0,
        localized=job.localized,
        completed_at=job.completed_at,
        expires_at=job.expires_at,
        starts_at=job.starts_at,
        context=job.context,
        service=job.service.value,
        filters=job.filters,
        metadata=job.metadata,
        csv_path=job.csv_path,
        control_group_csv_path=job.control_group_csv_path,
        created_by=job.created_by,
        app=app_view(app),
        app_id=job.app_id,
        job_group_id=job.group_id,
        template_name=",".join(job.template_names),
        past_time_strategy=job.past_time_strategy,
        status=STATUS[job.status],
        feedbacks=job.feedbacks,
        created_at=job.created_at,
        updated_at=job.updated_at,
        status_events=None,
    )
