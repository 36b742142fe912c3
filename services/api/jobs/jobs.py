"""`/apps/{appId}/jobs`: push jobs, and their pause, resume and stop."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from msgspec import Meta, Struct

from services.api.accounts.apps import app_of
from services.api.http import paging, wire
from services.api.http.idempotency import read_key
from services.api.http.identity import Who, caller_of
from services.api.http.routes import Parameter, endpoint
from services.api.jobs import job_body
from services.api.jobs.job_body import JobBody
from services.api.jobs.job_draft import JobDrafts
from services.api.jobs.job_view import JobView, job_view
from shared.domain.accounts.apps import App, check_not_deleting
from shared.domain.errors import Conflict, Forbidden, Invalid, NotFound
from shared.domain.idempotency import Idempotency
from shared.domain.ids import read_uuid
from shared.domain.jobs.groups import Group, zone_jobs
from shared.domain.jobs.jobs import Job, Totals
from shared.flow.jobs.groups import GroupFlow
from shared.flow.jobs.jobs import JobFlow
from shared.store import Store


class JobPosition(Struct, frozen=True, array_like=True):
    """Where a job stands in the list of its app's."""

    created_at: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    id: str


TEMPLATE = Parameter(
    name="template",
    description="The name of the templates to send; of several, joined by commas, each device gets one.",
    schema={"type": "string", "minLength": 1},
    required=True,
)
NAMED = Parameter(name="template", description="Only jobs with exactly these names.", schema={"type": "string"})
KEY = Parameter(
    name="Idempotency-Key",
    description="A repeated request with the same key is answered with the job that the first one made.",
    schema={"type": "string", "minLength": 1, "maxLength": 255},
    place="header",
)


class JobsResource:
    """The routes of jobs."""

    def __init__(self, store: Store, drafts: JobDrafts, flow: JobFlow, groups: GroupFlow) -> None:
        self._store = store
        self._drafts = drafts
        self._flow = flow
        self._groups = groups

    def handlers(self) -> list[HTTPRouteHandler]:
        """All of them."""
        ok, created, missing = HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NOT_FOUND
        every, one = "/apps/{app_id:str}/jobs", "/apps/{app_id:str}/jobs/{job_id:str}"
        who = Who.OF_APP
        moves: dict[str, Callable[..., Any]] = {"pause": self.pause, "resume": self.resume, "stop": self.stop}
        return [
            endpoint("GET", every, self.index, who=who, answers={ok: list[JobView]}, parameters=(NAMED,), paged=True),
            endpoint(
                "POST", every, self.add, who=who, body=JobBody, answers={created: JobView, ok: JobView},
                problems=(HTTPStatus.CONFLICT,), parameters=(TEMPLATE, KEY),
            ),
            endpoint("GET", one, self.show, who=who, answers={ok: JobView}, problems=(missing,)),
            *(
                endpoint("PUT", f"{one}/{name}", move, who=who, answers={ok: JobView}, problems=(missing,))
                for name, move in moves.items()
            ),
        ]  # fmt: skip

    async def index(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        """List an app's jobs, the oldest first; an unknown app has none."""
        asked = paging.asked(request, JobPosition)
        app = await self._store.apps.get(read_uuid(app_id, field="appId"))
        if app is None:
            return wire.answer([])
        template = paging.first(request, "template")
        after = None if asked.after is None else (asked.after.created_at, asked.after.id)
        jobs = await self._store.jobs.page(app.id, template=template, after=after, limit=asked.limit)
        headers = paging.links(request, asked, jobs, lambda job: JobPosition(job.created_at, job.id))
        totals = await self._flow.progress(jobs)
        return wire.answer(
            [job_view(job, app, totals.get(job.id, Totals()), listed=True) for job in jobs], headers=headers
        )

    async def add(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        """Make a job, which starts at once or at `startsAt`."""
        app = await self._store.apps.get(read_uuid(app_id, field="appId"))
        if app is None:
            raise Invalid("App not found with given id.", field="appId", value=app_id)
        query = paging.first(request, "template")
        names = job_body.read_names(query)
        content = await request.body()
        body = wire.read(content, JobBody)
        caller = caller_of(request)
        key = read_key(
            request.headers.getall("idempotency-key", []),
            namespace=caller.namespace,
            request=(app.id, query, content),
        )
        # What was asked for before may break a rule by now: the answer stays.
        if earlier := await self._earlier(key):
            return await self._answer(*earlier, app)
        check_not_deleting(app, app.id)
        job = await self._drafts.job(app, names, body, created_by=caller.name, key=key)
        group = self._drafts.group(job) if job.localized else None
        if group is not None:
            group, fresh = await self._groups.start(group)
            job = zone_jobs(group)[-1]
        else:
            job, fresh = await self._flow.start(job)
        if not fresh:
            return await self._answer(job, group, app)
        await self._withdraw_if_deleting(app, job, group)
        return wire.answer(job_view(job, app, Totals(), group), HTTPStatus.CREATED)

    async def show(self, app_id: FromPath[str], job_id: FromPath[str]) -> Response[bytes]:
        """Show a job and its progress."""
        app, job = await self._job(app_id, job_id)
        return await self._answer(job, None, app)

    async def pause(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], job_id: FromPath[str]
    ) -> Response[bytes]:
        """Hold a job: nothing more is sent until it is resumed."""
        app, job = await self._job(app_id, job_id)
        paused = await self._flow.pause(job.key, by=caller_of(request).name)
        if paused is None:
            raise await self._explain_forbidden("pause", job)
        return await self._answer(paused, None, app)

    async def resume(self, app_id: FromPath[str], job_id: FromPath[str]) -> Response[bytes]:
        """Let a paused job, or one that broke its circuit, go on; before its `startsAt`, let it start then."""
        app, job = await self._job(app_id, job_id)
        resumed = await self._flow.resume(job.key)
        if resumed is None:
            raise Forbidden("cannot resume job with status other than paused/circuitbreak", field="status")
        return await self._answer(resumed, None, app)

    async def stop(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], job_id: FromPath[str]
    ) -> Response[bytes]:
        """End a job for good; what is not sent is dropped. A stopped job stays stopped."""
        app, job = await self._job(app_id, job_id)
        stopped = await self._flow.stop(job.key, by=caller_of(request).name) or await self._find_stopped(job.id)
        if stopped is None:
            raise await self._explain_forbidden("stop", job)
        return await self._answer(stopped, None, app)

    async def _earlier(self, key: Idempotency | None) -> tuple[Job, Group | None] | None:
        """What the same request made before."""
        if job := await self._flow.earlier(key):
            return job, None
        if group := await self._groups.earlier(key):
            return zone_jobs(group)[-1], group
        return None

    async def _withdraw_if_deleting(self, app: App, job: Job, group: Group | None) -> None:
        """Take what is new back where the app's deletion began meanwhile, which may not have seen it."""
        try:
            check_not_deleting(await self._store.apps.get(app.id), app.id)
        except Conflict:
            for job_key in [job.key] if group is None else group.job_keys:
                if not await self._flow.withdraw(job_key):
                    await self._flow.stop(job_key, failure="the app is being deleted")
            raise

    async def _job(self, app_id: str, job_id: str) -> tuple[App, Job]:
        app = await app_of(self._store, app_id)
        job = await self._store.jobs.view(read_uuid(job_id, field="jobId"))
        if job is None or job.app_id != app.id:
            raise NotFound("the app has no job with this id", field="jobId", value=job_id)
        return app, job

    async def _find_stopped(self, job_id: str) -> Job | None:
        job = await self._store.jobs.view(job_id)
        return job if job is not None and job.standing.stopped else None

    async def _explain_forbidden(self, move: str, job: Job) -> Forbidden:
        now = await self._store.jobs.view(job.id) or job
        return Forbidden(f"cannot {move} {now.status} job", field="status", value=now.status.value)

    async def _answer(self, job: Job, group: Group | None, app: App) -> Response[bytes]:
        current = job if group is None else await self._store.jobs.view(job.id) or job
        totals, progress = await self._flow.measure_progress(current)
        return wire.answer(job_view(current, app, totals, group, progress=progress))
