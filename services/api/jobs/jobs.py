"""`/apps/{appId}/jobs`: push jobs."""

from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import UNSET
from msgspec.structs import replace

from services.api.accounts.apps import APP, app_of
from services.api.http import paging, wire
from services.api.http.acts import note_name
from services.api.http.idempotency import idempotency_of
from services.api.http.identity import caller_of
from services.api.http.rights import OPERATE_APP, VIEW_APP, sees_personal_data
from services.api.http.routes import Resource, Route
from services.api.jobs import job_body
from services.api.jobs.job_answers import JobAnswers
from services.api.jobs.job_draft import JobDrafts
from services.api.jobs.job_parameters import EXACT, KEY, NAMED, TEMPLATE, JobPosition
from services.api.jobs.job_view import JobView, job_view, listed_views, redact
from shared.domain.accounts.apps import App, check_not_deleting
from shared.domain.errors import Conflict, Invalid, NotFound
from shared.domain.idempotency import Idempotency
from shared.domain.ids import read_uuid
from shared.domain.jobs.groups import Group, zone_jobs
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.totals import Totals
from shared.flow.jobs.groups import GroupFlow
from shared.flow.jobs.jobs import JobFlow
from shared.flow.jobs.watch import JobWatch
from shared.store import Store

JOBS = APP + "/jobs"
JOB = JOBS + "/{job_id:str}"


class JobsResource(Resource):
    """The routes of jobs, but for their moves."""

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
            return wire.answer([])
        template = paging.first(request, "template")
        after = None if asked.after is None else (asked.after.created_at, asked.after.id)
        jobs = await self._store.job_lists.page_of_app(app.id, template=template, after=after, limit=asked.limit)
        headers = paging.links(request, asked, jobs, lambda job: JobPosition(job.created_at, job.id))
        views = listed_views(jobs, {app.id: app}, await self._watch.measure(jobs))
        return wire.answer(views if sees_personal_data(request) else [redact(view) for view in views], headers=headers)

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
        await self._confirm(app, job, group)
        view = job_view(job, app, Totals(), group)
        return wire.answer(replace(view, warnings=list(draft.warnings) or UNSET), HTTPStatus.CREATED)

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

    async def _confirm(self, app: App, job: Job, group: Group | None) -> None:
        """Withdraw a new job if its app or account is being deleted, because the deletion may not have seen it."""
        try:
            check_not_deleting(await self._store.apps.get(app.id), app.id)
            await self._drafts.confirm(job)
        except Conflict as conflict:
            for job_key in [job.key] if group is None else group.job_keys:
                if not await self._flow.withdraw(job_key):
                    await self._flow.stop(job_key, failure=conflict.reason)
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
