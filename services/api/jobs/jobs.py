"""`/apps/{appId}/jobs`: push jobs, the parameters of their routes, and their batches."""

from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from services.api.accounts.apps import APP, app_of
from services.api.http import bodies, paging
from services.api.http.acts import note_name
from services.api.http.bodies import Timestamp
from services.api.http.identity import caller_of
from services.api.http.paging import idempotency_of
from services.api.http.rights import OPERATE_APP, VIEW_APP, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from services.api.jobs import job_body
from services.api.jobs.job_draft import JobDrafts
from services.api.jobs.job_view import JobAnswers, JobView, job_view, listed_views, redact
from shared.accounts.rules.apps import App, check_not_deleting
from shared.core.errors import Conflict, Invalid, NotFound
from shared.core.ids import Idempotency, read_uuid
from shared.core.instants import format_instant, format_maybe
from shared.jobs.moves import GroupFlow, JobFlow
from shared.jobs.rules.batches import Batch, BatchStatus, Totals, top
from shared.jobs.rules.groups import Group, zone_jobs
from shared.jobs.rules.jobs import Job
from shared.jobs.rules.progress import POINTS
from shared.jobs.watch import JobWatch
from shared.store import Store

TEMPLATE = Parameter(
    name="template",
    description="The name of the templates to send; of several, joined by commas, each user gets one.",
    schema={"type": "string", "minLength": 1},
    required=True,
)
NAMED = Parameter(
    name="template",
    description="Only jobs with exactly these names.",
    schema={"type": "string"},
    may_be_empty=True,  # as in Marathon: no filter
)
KEY = Parameter(
    name="Idempotency-Key",
    description="A repeated request with the same key is answered with the job that the first one made.",
    schema={"type": "string", "minLength": 1, "maxLength": 255},
    place="header",
)
EXACT = Parameter(
    name="exact",
    description="`true`: what is told of the job's messages is read now; otherwise it may be a second old.",
    schema={"type": "boolean"},
)


class JobPosition(Struct, frozen=True, array_like=True):
    created_at: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    id: str


JOBS = APP + "/jobs"
JOB = JOBS + "/{job_id:str}"


class JobsResource(Resource):
    def __init__(
        self,
        store: Store,
        drafts: JobDrafts,
        flow: JobFlow,
        groups: GroupFlow,
        watch: JobWatch,
        answers: JobAnswers,
    ) -> None:
        self._store = store
        self._watch = watch
        self._answers = answers
        self._drafts = drafts
        self._flow = flow
        self._groups = groups

    @Route(
        "GET", JOBS,
        summary="List an app's jobs, the oldest first; an unknown app has none. "
                "`context` is left empty: the route of a job has it.",
        who=VIEW_APP, answers={HTTPStatus.OK: list[JobView]}, parameters=(NAMED,), paged=True,
    )  # fmt: skip
    async def list_jobs(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        asked = paging.read_page(request, JobPosition)
        app = await self._store.apps.get(read_uuid(app_id, field="appId"))
        if app is None:
            return bodies.answer([])
        template = paging.first(request, "template")
        after = None if asked.after is None else (asked.after.created_at, asked.after.id)
        jobs = await self._store.job_lists.page_of_app(app.id, template=template, after=after, limit=asked.limit)
        headers = paging.links(request, asked, jobs, lambda job: JobPosition(job.created_at, job.id))
        views = listed_views(jobs, {app.id: app}, await self._watch.measure(jobs))
        return bodies.answer(
            views if sees_personal_data(request) else [redact(view) for view in views], headers=headers
        )

    @Route(
        "POST", JOBS, summary="Make a job, which starts at once or at `startsAt`.",
        act="job.create", who=OPERATE_APP, body=job_body.JobBody,
        answers={HTTPStatus.CREATED: JobView, HTTPStatus.OK: JobView},
        problems=(HTTPStatus.CONFLICT,), parameters=(TEMPLATE, KEY),
    )  # fmt: skip
    async def create_job(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        app = await self._store.apps.get(read_uuid(app_id, field="appId"))
        if app is None:
            raise Invalid("App not found with given id.", field="appId", value=app_id)
        query = paging.first(request, "template")
        names = job_body.read_names(query)
        note_name("job", query)
        content = await request.body()
        body = self._drafts.read_body(content)
        note_name("job", body.name or query)
        key = idempotency_of(request, (app.id, query, content))
        # What was asked for before may break a rule by now: the answer stays.
        if earlier := await self._earlier(key):
            return await self._answer_known(*earlier, app)
        check_not_deleting(app, app.id)
        draft = await self._drafts.prepare(app, names, body, caller_of(request).name, key)
        group = self._drafts.group(draft.job) if draft.job.localized else None
        if group is not None:
            group, fresh = await self._groups.start(group)
            job = zone_jobs(group)[-1]
        else:
            job, fresh = await self._flow.start(draft.job)
        if not fresh:
            return await self._answer_known(job, group, app)
        await self._confirm(job, group)
        view = job_view(job, app, Totals(), group)
        return bodies.answer(replace(view, warnings=list(draft.warnings) or UNSET), HTTPStatus.CREATED)

    @Route(
        "GET", JOB, summary="Show a job and its progress.",
        who=VIEW_APP, answers={HTTPStatus.OK: JobView}, problems=(HTTPStatus.NOT_FOUND,), parameters=(EXACT,),
    )  # fmt: skip
    async def get_job(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], job_id: FromPath[str]
    ) -> Response[bytes]:
        app, job = await job_of(self._store, app_id, job_id)
        exact = paging.read_flag(request, EXACT.name)
        return await self._answers.show(job, app, personal=sees_personal_data(request), exact=exact)

    async def _earlier(self, key: Idempotency | None) -> tuple[Job, Group | None] | None:
        if job := await self._flow.earlier(key):
            return job, None
        if group := await self._groups.earlier(key):
            return zone_jobs(group)[-1], group
        return None

    async def _confirm(self, job: Job, group: Group | None) -> None:
        """Withdraw a new job if its app or account is being deleted, because the deletion may not have seen it."""
        try:
            await self._drafts.confirm(job)
        except Conflict as conflict:
            await self._flow.take_back([job.key] if group is None else group.job_keys, conflict.reason)
            raise

    async def _answer_known(self, job: Job, group: Group | None, app: App) -> Response[bytes]:
        current = job if group is None else await self._store.jobs.view(job.id) or job
        return await self._answers.show(current, app, group)


async def job_of(store: Store, app_id: str, job_id: str) -> tuple[App, Job]:
    """The job that a path names, and its app. Raises `Invalid` for an id that is no UUID, and `NotFound`."""
    app = await app_of(store, app_id)
    job = await store.jobs.view(read_uuid(job_id, field="jobId"))
    if job is None or job.app_id != app.id:
        raise NotFound("the app has no job with this id", field="jobId", value=job_id)
    note_name("job", job.title)
    return app, job


_STATE = Parameter(
    name="state", description="Only those in this state.", schema={"enum": [status.value for status in BatchStatus]}
)


class BatchView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A batch of a job. `planned` counts its devices as far as they are known, `attempts` how often a worker took it.
    `error` is the reason that most of its failures have, once it has failed. `reasons` tells failed and skipped ones
    apart by why."""

    ordinal: int
    state: BatchStatus
    zone: str
    planned: int
    sent: int
    failed: int
    skipped: int
    held_out: int
    unknown: int
    attempts: int
    error: str
    reasons: dict[str, int]
    changed_at: Timestamp | None


class RatePointView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The recipients a second from `at` on, until the next point."""

    at: Timestamp
    per_second: float


class RateView(Struct, frozen=True):
    """How fast a job went: at most 120 points of like length. It is empty for a job that was closed at once."""

    points: list[RatePointView]


class BatchesResource(Resource):
    def __init__(self, store: Store, watch: JobWatch) -> None:
        self._store = store
        self._watch = watch

    @Route(
        "GET", JOB + "/batches", summary="List the batches of a job, in their order.",
        who=VIEW_APP, answers={HTTPStatus.OK: list[BatchView]}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(_STATE,), paged=True,
    )  # fmt: skip
    async def list_job_batches(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], job_id: FromPath[str]
    ) -> Response[bytes]:
        asked = paging.read_page(request, int)
        status = paging.read_choice(request, "state", BatchStatus, "state is one of")
        _, job = await job_of(self._store, app_id, job_id)
        after = -1 if asked.after is None else asked.after
        batches = await self._store.batch_sums.page(job.key, status=status, after=after, limit=asked.limit)
        headers = paging.links(request, asked, batches, lambda batch: batch.ordinal)
        return bodies.answer([_batch_view(batch, job) for batch in batches], headers=headers)

    @Route(
        "GET", JOB + "/rate", summary=f"Tell how fast a job went, in at most {POINTS} points.",
        who=VIEW_APP, answers={HTTPStatus.OK: RateView}, problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def get_job_rate(self, app_id: FromPath[str], job_id: FromPath[str]) -> Response[bytes]:
        _, job = await job_of(self._store, app_id, job_id)
        chart = await self._watch.read_chart(job)
        points = [RatePointView(at=format_instant(point.at), per_second=point.per_second) for point in chart]
        return bodies.answer(RateView(points))


def _batch_view(batch: Batch, job: Job) -> BatchView:
    receipt = batch.receipt
    return BatchView(
        ordinal=batch.ordinal,
        state=batch.status,
        zone=job.zone,
        planned=batch.size,
        sent=receipt.sent,
        failed=receipt.failed,
        skipped=receipt.skipped,
        held_out=receipt.held_out,
        unknown=receipt.unknown,
        attempts=batch.attempts,
        error=next(iter(top(receipt.reasons)), "") if batch.has_failed else "",
        reasons=receipt.reasons,
        changed_at=format_maybe(batch.changed_at),
    )
