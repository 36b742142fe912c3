"""A job as clients see it: Marathon's fields with its types, beside them Carillon's own parts, and the answers that
show one job.
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from litestar import Response
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from carillon.wire.clock import ScheduleName
from services.api.accounts.apps import AppView, app_view
from services.api.http import bodies
from services.api.http.bodies import hide
from services.api.jobs.job_body import AccountFigures, AccountJobs, JobQueueView, MessageCountsView
from shared.accounts.rules.apps import App
from shared.clock.rules.schedules import read_schedule_id
from shared.core.instants import ns
from shared.jobs.rules.batches import Receipt, Totals
from shared.jobs.rules.groups import Group
from shared.jobs.rules.jobs import Job, JobStatus
from shared.jobs.rules.progress import Progress
from shared.jobs.watch import JobMeasure, JobWatch
from shared.store import Store

# A job that waits, runs or is completed has the empty status; `completedAt` tells the last of them apart.
STATUS: dict[JobStatus, str] = {
    JobStatus.SCHEDULED: "",
    JobStatus.RUNNING: "",
    JobStatus.PAUSED: "paused",
    JobStatus.TRIPPED: "circuitbreak",
    JobStatus.STOPPED: "stopped",
    JobStatus.COMPLETED: "",
}


class JobState(StrEnum):
    """The state of a job in one word: its status, or one of two ends that Marathon does not know."""

    SCHEDULED = "scheduled"
    RUNNING = "running"
    PAUSED = "paused"
    CIRCUITBREAK = "circuitbreak"
    STOPPED = "stopped"  # by a caller
    FAILED = "failed"  # Carillon stopped it: `failure` says why
    EXPIRED = "expired"  # its `expiresAt` came before all was sent
    COMPLETED = "completed"


_SUMMED = (
    "total_batches", "completed_batches", "total_users", "completed_users", "total_tokens", "completed_tokens",
    "sent", "failed", "skipped", "held_out", "unknown",
)  # fmt: skip
_LIVELIEST = (
    JobState.CIRCUITBREAK, JobState.RUNNING, JobState.PAUSED, JobState.SCHEDULED, JobState.FAILED, JobState.STOPPED,
    JobState.EXPIRED, JobState.COMPLETED,
)  # fmt: skip
ENDED = frozenset({JobState.STOPPED, JobState.FAILED, JobState.EXPIRED, JobState.COMPLETED})
WITH_FAILURE = {JobStatus.STOPPED: JobState.FAILED, JobStatus.COMPLETED: JobState.EXPIRED}
"""The states of ended jobs that have a `failure`."""


def state_of(job: Job) -> JobState:
    """The state that native readers see."""
    state = WITH_FAILURE.get(job.status) if job.failure else None
    return state or JobState(job.status)


class DoerView(Struct, frozen=True, kw_only=True):
    """The caller: a `user`, a `token`, or `system`, Carillon by itself."""

    kind: str
    name: str


class JobEvent(Struct, frozen=True, kw_only=True):
    """One step of a stage."""

    id: str
    message: str
    statusID: str  # noqa: N815 - Marathon's spelling
    state: str
    createdAt: int  # noqa: N815
    by: DoerView


class StatusEvent(Struct, frozen=True, kw_only=True):
    """One stage of a job."""

    id: str
    name: str
    jobID: str  # noqa: N815 - Marathon's spelling
    createdAt: int  # noqa: N815
    events: list[JobEvent]


class ZoneView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A zone of a localized push: when its job starts."""

    zone: str
    job_id: str
    starts_at: int


class JobView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A job. Times in nanoseconds since the epoch, 0 and `""` where unset; a recipient is a device.

    `completedTokens` = `sent` + `failed` + `skipped` + `heldOut`; `unknown` counts users of a file who have no device.
    `totalUsers` and `completedUsers` count devices too, as in Marathon.
    `reasons` tells failed and skipped ones apart by why, `locales` counts what was sent. `rate` is in recipients a
    second over the last half minute, `estimatedEnd` follows from it. A list tells these of ended jobs and of its first
    50 open ones; of a job with a `credentialId`, only its own route tells `estimatedEnd`.
    `state` says in one word what Marathon's `status` and `completedAt` say together: `scheduled`, `running`, `paused`,
    `circuitbreak`, `stopped`, `failed`, `expired` or `completed`. A job is `failed` that Carillon stopped, and
    `expired` if its `expiresAt` came before all was sent; `failure` then says why. `statusEvents` and `context` are
    only there for a single job: in lists the one is `null`, the other `{}`. `redacted` says that `context`, `metadata`,
    the values of `filters`, the paths of files and what went wrong are left out, because the caller is a viewer.

    `name` is the caller's, or else the template's. `kind` is `push`, `mail` or `sms`; of an account for other
    recipients its kind, such as `http`. A list that is `grouped` has a localized push as one job: with the id of its
    group, the sums of its zones, `states`, which counts its zones by state, and as `state` that of the liveliest zone.

    `credentialId` names the provider account of a job that sends by one. The route of a single such job adds
    `options`, the other fields of its POST, exact `messages`, and `queue`; its sums, `reasons` and `estimatedEnd`
    follow from these. `completedTokens` are then all messages but `unsent` and `sending` ones, `failed` has the
    `unknown` ones, and `skipped` are the `invalid` ones. Lists leave out what callbacks have told since its batches
    were settled.

    `schedule` is the one that started the job, if one did. `warnings` are only in the answer to POST. They name what is
    allowed but probably a mistake.
    """

    id: str
    total_batches: int
    completed_batches: int
    control_group: float
    total_users: int
    completed_users: int
    total_tokens: int
    completed_tokens: int
    sent: int
    failed: int
    skipped: int
    held_out: int
    unknown: int
    reasons: dict[str, int]
    locales: dict[str, int]
    rate: float
    estimated_end: int
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
    name: str
    kind: str
    past_time_strategy: str
    status: str
    state: JobState
    feedbacks: dict[str, int]
    created_at: int
    updated_at: int
    status_events: list[StatusEvent] | None
    zone: str
    zones: list[ZoneView]
    states: dict[str, int] | UnsetType = UNSET
    credential_id: str | UnsetType = UNSET
    schedule: ScheduleName | UnsetType = UNSET
    options: dict[str, Any] | UnsetType = UNSET
    messages: MessageCountsView | UnsetType = UNSET
    queue: JobQueueView | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
    redacted: bool = False


def with_account(view: JobView, figures: AccountFigures) -> JobView:
    """The job with what is told of those that send by a provider account. All its sums come from one look at the
    ledger, so that they add up."""
    receipt = figures.receipt
    return replace(
        view,
        total_users=figures.messages.planned,
        completed_users=receipt.recipients,
        total_tokens=figures.messages.planned,
        completed_tokens=receipt.recipients,
        sent=receipt.sent,
        failed=receipt.failed,
        skipped=receipt.skipped,
        options=figures.options,
        messages=figures.messages,
        queue=figures.queue,
        reasons=receipt.reasons,
        estimated_end=0 if figures.ends_at is None else ns(figures.ends_at),
    )


def listed_views(jobs: Sequence[Job], apps: Mapping[str, App], measured: Mapping[str, JobMeasure]) -> list[JobView]:
    """These jobs as lists have them, without those of which no app is given."""
    return [_listed_view(job, apps[job.app_id], measured[job.id]) for job in jobs if job.app_id in apps]


def fold_zones(zones: Sequence[JobView]) -> JobView:
    """A localized push as one job, from those of its zones."""
    first, states = zones[0], Counter(zone.state for zone in zones)
    sums: dict[str, Any] = {name: sum(getattr(zone, name) for zone in zones) for name in _SUMMED}
    for name in ("reasons", "locales", "feedbacks"):
        sums[name] = dict(sum((Counter(getattr(zone, name)) for zone in zones), Counter()))
    liveliest = min(states, key=_LIVELIEST.index)
    runs = liveliest is JobState.SCHEDULED and JobState.COMPLETED in states  # some zones are done, others lie ahead
    has_ended = all(zone.completed_at for zone in zones)
    return replace(
        first,
        id=first.job_group_id,
        zone="",
        state=JobState.RUNNING if runs else liveliest,
        states={str(each): count for each, count in sorted(states.items())},
        status=next(zone.status for zone in zones if zone.state is liveliest),
        failure=next((zone.failure for zone in zones if zone.failure), ""),
        starts_at=min(zone.starts_at for zone in zones),
        updated_at=max(zone.updated_at for zone in zones),
        completed_at=max(zone.completed_at for zone in zones) if has_ended else 0,
        estimated_end=0,
        rate=round(sum(zone.rate for zone in zones), 4),
        **sums,
    )


def _listed_view(job: Job, app: App, measured: JobMeasure) -> JobView:
    progress = measured.progress
    if job.credential_id:
        progress = replace(progress, ends_at=None)  # what waits at the account is not known here
    return job_view(job, app, measured.totals, progress=progress, listed=True)


def redact(view: JobView) -> JobView:
    """The job for a viewer: without what may tell of persons. An error's text may name a file."""
    bare = replace(view, context={}, metadata={}, csv_path="", control_group_csv_path="", redacted=True)
    filters = {column: hide(value) for column, value in view.filters.items()}
    return replace(
        bare, filters=filters, failure=hide(view.failure), status_events=_without_messages(view.status_events)
    )


def _without_messages(stages: list[StatusEvent] | None) -> list[StatusEvent] | None:
    return stages and [
        replace(stage, events=[replace(event, message=hide(event.message)) for event in stage.events])
        for stage in stages
    ]


def _schedule_of(job: Job) -> ScheduleName | UnsetType:
    if not job.schedule:
        return UNSET
    namespace, key = read_schedule_id(job.schedule)
    return ScheduleName(namespace=namespace, key=key)


def job_view(
    job: Job,
    app: App,
    totals: Totals,
    group: Group | None = None,
    *,
    progress: Progress | None = None,
    listed: bool = False,
) -> JobView:
    """A job of an app, with its present sums, its group's zones and its progress if they are given."""
    summed = progress.summed if progress is not None else Receipt(reasons=job.reasons, locales=job.locales)
    ends_at = progress.ends_at if progress is not None else None
    return JobView(
        id=job.id,
        total_batches=totals.batches,
        completed_batches=totals.settled,
        control_group=job.control_group,
        total_users=totals.planned,
        completed_users=totals.done,
        total_tokens=totals.planned,
        completed_tokens=totals.done,
        sent=totals.sent,
        failed=totals.failed,
        skipped=totals.skipped,
        held_out=totals.held_out,
        unknown=totals.unknown,
        reasons=summed.reasons,
        locales=summed.locales,
        rate=0.0 if progress is None else round(progress.rate, 1 if progress.rate >= 1 else 4),
        estimated_end=0 if ends_at is None else ns(ends_at),
        failure=job.failure,
        db_page_size=0,
        localized=job.localized,
        completed_at=job.completed_at,
        expires_at=job.expires_at,
        starts_at=job.starts_at,
        context=job.context,
        service=job.service,
        filters=job.filters,
        metadata=job.metadata,
        csv_path=job.csv_path,
        control_group_csv_path=job.control_group_csv_path,
        created_by=job.created_by,
        app=app_view(app),
        app_id=job.app_id,
        job_group_id=job.group_id,
        template_name=",".join(job.template_names),
        name=job.title,
        kind=job.kind,
        past_time_strategy=job.past_time_strategy,
        status=STATUS[job.status],
        state=state_of(job),
        feedbacks=job.feedbacks,
        created_at=job.created_at,
        updated_at=job.updated_at,
        status_events=None if listed else _status_events(job) or None,
        zone=job.zone,
        zones=[] if group is None else _zones(group),
        credential_id=job.credential_id or UNSET,
        schedule=_schedule_of(job),
    )


def _status_events(job: Job) -> list[StatusEvent]:
    stages = {event.stage: [each for each in job.events if each.stage == event.stage] for event in job.events}
    return [
        StatusEvent(
            id=(stage_id := _id(job, stage)),
            name=stage,
            jobID=job.id,
            createdAt=events[0].at,
            events=[
                JobEvent(
                    id=_id(job, stage, str(number)),
                    message=event.message,
                    statusID=stage_id,
                    state=event.state.value,
                    createdAt=event.at,
                    by=DoerView(kind=event.by.kind, name=event.by.name),
                )
                for number, event in enumerate(events)
            ],
        )
        for stage, events in stages.items()
    ]


def _id(job: Job, *names: str) -> str:
    return str(uuid.uuid5(uuid.UUID(job.id), "/".join(names)))


def _zones(group: Group) -> list[ZoneView]:
    pairs = zip(group.zones, group.job_ids, strict=True)
    return [ZoneView(zone=each.zone, job_id=job_id, starts_at=each.starts_at) for each, job_id in pairs]


class JobAnswers:
    def __init__(self, store: Store, watch: JobWatch, account_jobs: AccountJobs) -> None:
        self._store = store
        self._watch = watch
        self._account_jobs = account_jobs

    async def show(
        self,
        job: Job,
        app: App,
        group: Group | None = None,
        *,
        personal: bool = True,
        exact: bool = False,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> Response[bytes]:
        """The job and its progress, without personal data unless `personal`; `exact` is as of this moment what the
        ledger tells of its messages."""
        figures = await self._account_jobs.measure(job, exact=exact) if job.credential_id else None
        # A job that was taken up again in between sends, and its state must say so.
        while figures and figures.round != job.round and (now := await self._store.jobs.view(job.key)) is not None:
            job, figures = now, await self._account_jobs.measure(now, exact=exact)
        measured = (await self._watch.measure([job]))[job.id]
        view = job_view(job, app, measured.totals, group, progress=measured.progress)
        if figures is not None:
            view = with_account(view, figures)
        return bodies.answer(view if personal else redact(view), status)
