"""`/apps/{appId}/jobs`: push jobs, and their pause, resume and stop."""

from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from msgspec import Meta, Struct

from services.api import job_body, paging, wire
from services.api.apps import app_of
from services.api.identity import Who, caller_of
from services.api.ids import fresh_id
from services.api.job_body import JobBody
from services.api.job_view import JobView, job_view
from services.api.routes import Parameter, endpoint
from shared.audience import Audience
from shared.domain.accounts import App, check_staying, read_uuid
from shared.domain.audiences import table_name
from shared.domain.errors import Conflict, Forbidden, Invalid, NotFound
from shared.domain.jobs import Idempotency, Job, JobStatus, Service, Totals
from shared.flow import JobFlow
from shared.runtime.clock import Clock
from shared.store import Store


class Position(Struct, frozen=True, array_like=True):
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

    def __init__(self, store: Store, audience: Audience, flow: JobFlow, clock: Clock) -> None:
        self._store = store
        self._audience = audience
        self._flow = flow
        self._clock = clock

    def handlers(self) -> list[HTTPRouteHandler]:
        """All of them."""
        ok, created, missing = HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NOT_FOUND
        every, one = "/apps/{app_id:str}/jobs", "/apps/{app_id:str}/jobs/{job_id:str}"
        who = Who.OF_APP
        moves = {"pause": self.pause, "resume": self.resume, "stop": self.stop}
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
        asked = paging.asked(request, Position)
        app = await self._store.apps.get(read_uuid(app_id, field="appId"))
        if app is None:
            return wire.answer([])
        template = paging.first(request, "template")
        after = None if asked.after is None else (asked.after.created_at, asked.after.id)
        found = await self._store.jobs.page(app.id, template=template, after=after, limit=asked.fetch)
        jobs, headers = paging.page(request, asked, found, lambda job: Position(job.created_at, job.id))
        totals = await self._flow.progress(jobs)
        return wire.answer([job_view(job, app, totals.get(job.id, Totals())) for job in jobs], headers=headers)

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
        key = job_body.read_key(
            request.headers.getall("idempotency-key", []),
            namespace=caller.namespace,
            request=(app.id, query, content),
        )
        # What was asked for before may break a rule by now: the answer stays.
        if job := await self._flow.earlier(key):
            return await self._answered(job, app)
        check_staying(app, app.id)
        await self._check(app, names, body)
        job, fresh = await self._flow.start(self._made(body, app, names, caller.name, key))
        if not fresh:
            return await self._answered(job, app)
        await self._check_staying(app, job)
        return wire.answer(job_view(job, app, Totals()), HTTPStatus.CREATED)

    async def show(self, app_id: FromPath[str], job_id: FromPath[str]) -> Response[bytes]:
        """Show a job and its progress."""
        app, job = await self._job(app_id, job_id)
        return await self._answered(job, app)

    async def pause(self, app_id: FromPath[str], job_id: FromPath[str]) -> Response[bytes]:
        """Hold a job: nothing more is sent until it is resumed."""
        app, job = await self._job(app_id, job_id)
        paused = await self._flow.pause(job.id)
        if paused is None:
            raise await self._forbidden("pause", job)
        return await self._answered(paused, app)

    async def resume(self, app_id: FromPath[str], job_id: FromPath[str]) -> Response[bytes]:
        """Let a paused job, or one that broke its circuit, go on; before its `startsAt`, let it start then."""
        app, job = await self._job(app_id, job_id)
        resumed = await self._flow.resume(job.id)
        if resumed is None:
            raise Forbidden("cannot resume job with status other than paused/circuitbreak", field="status")
        return await self._answered(resumed, app)

    async def stop(self, app_id: FromPath[str], job_id: FromPath[str]) -> Response[bytes]:
        """End a job for good; what is not sent is dropped. A stopped job stays stopped."""
        app, job = await self._job(app_id, job_id)
        stopped = await self._flow.stop(job.id) or await self._stopped(job.id)
        if stopped is None:
            raise await self._forbidden("stop", job)
        return await self._answered(stopped, app)

    async def _check(self, app: App, names: tuple[str, ...], body: JobBody) -> None:
        job_body.check(body, now=self._clock.now_ns())
        job_body.check_templates(names, await self._store.templates.outlines(app.id, names))
        job_body.check_supported(body)
        await self._audience.check(table_name(app.name, Service(body.service)), body.filters)

    def _made(self, body: JobBody, app: App, names: tuple[str, ...], created_by: str, key: Idempotency | None) -> Job:
        now = self._clock.now_ns()
        return Job(
            id=job_body.read_id(body.id) or fresh_id(now),
            app_id=app.id,
            app_name=app.name,
            service=Service(body.service),
            template_names=names,
            created_by=created_by,
            group_id=fresh_id(now),
            filters=body.filters,
            context=body.context,
            metadata=body.metadata,
            past_time_strategy=body.past_time_strategy,
            expires_at=body.expires_at,
            starts_at=body.starts_at,
            status=JobStatus.SCHEDULED if body.starts_at else JobStatus.RUNNING,
            created_at=now,
            updated_at=now,
            idempotency=key,
        )

    async def _check_staying(self, app: App, job: Job) -> None:
        """Take the new job back where the app's deletion began meanwhile, which may not have seen it."""
        try:
            check_staying(await self._store.apps.get(app.id), app.id)
        except Conflict:
            if not await self._flow.withdraw(job.id):
                await self._flow.stop(job.id, failure="the app is being deleted")
            raise

    async def _job(self, app_id: str, job_id: str) -> tuple[App, Job]:
        app = await app_of(self._store, app_id)
        job = await self._store.jobs.view(read_uuid(job_id, field="jobId"))
        if job is None or job.app_id != app.id:
            raise NotFound("the app has no job with this id", field="jobId", value=job_id)
        return app, job

    async def _stopped(self, job_id: str) -> Job | None:
        job = await self._store.jobs.view(job_id)
        return job if job is not None and job.standing.stopped else None

    async def _forbidden(self, move: str, job: Job) -> Forbidden:
        now = await self._store.jobs.view(job.id) or job
        return Forbidden(f"cannot {move} {now.status} job", field="status", value=now.status.value)

    async def _answered(self, job: Job, app: App, status: HTTPStatus = HTTPStatus.OK) -> Response[bytes]:
        totals = await self._flow.progress([job])
        return wire.answer(job_view(job, app, totals.get(job.id, Totals())), status)
