"""The moves of a job: pause, resume and stop; their dry runs; and the deletion of a job that has ended."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.http import bodies
from services.api.http.identity import Connection, caller_of
from services.api.http.paging import is_dry_run
from services.api.http.rights import OPERATE_APP
from services.api.http.routes import DRY_RUN, Resource, Route
from services.api.jobs.job_view import JobAnswers, JobView
from services.api.jobs.jobs import JOB, job_of
from shared.core.errors import Forbidden
from shared.jobs.moves import JobFlow
from shared.jobs.retention import REQUEST_SECONDS, JobRemoval
from shared.jobs.rules.events import Doer
from shared.jobs.rules.jobs import PAUSABLE, RESUMABLE, STOPPABLE, Job, JobStatus
from shared.jobs.watch import sum_unsent
from shared.store import Store


def doer_of(connection: Connection) -> Doer:
    caller = caller_of(connection)
    return Doer("token" if caller.is_service else "user", caller.name)


class MoveFiguresView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The effect of a move: the number of `jobs` to be moved. `devicesNotReached` have got nothing yet, as far as these
    jobs are planned; `unplanned` of them are not planned to their end."""

    jobs: int
    devices_not_reached: int | None
    unplanned: int | None


async def answer_figures(store: Store, jobs: Sequence[Job], movable: AbstractSet[JobStatus]) -> Response[bytes]:
    """The figures of those of these jobs whose status allows the move."""
    told = await sum_unsent(store, [job for job in jobs if job.status in movable])
    view = MoveFiguresView(jobs=told.jobs, devices_not_reached=told.devices_not_reached, unplanned=told.unplanned)
    return bodies.answer(view)


_move = partial(
    Route, "PUT", who=OPERATE_APP, answers={HTTPStatus.OK: (JobView, MoveFiguresView)},
    problems=(HTTPStatus.NOT_FOUND,), parameters=(DRY_RUN,),
)  # fmt: skip


class JobMovesResource(Resource):
    def __init__(self, store: Store, flow: JobFlow, removal: JobRemoval, answers: JobAnswers) -> None:
        self._store = store
        self._removal = removal
        self._answers = answers
        self._flow = flow

    @_move(JOB + "/pause", act="job.pause", summary="Hold a job: nothing more is sent until it is resumed.")
    async def pause_job(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], job_id: FromPath[str]
    ) -> Response[bytes]:
        app, job = await job_of(self._store, app_id, job_id)
        if is_dry_run(request):
            return await answer_figures(self._store, [job], PAUSABLE)
        paused = await self._flow.pause(job.key, by=doer_of(request))
        if paused is None:
            raise await self._explain_forbidden("pause", job)
        return await self._answers.show(paused, app, exact=True)

    @_move(
        JOB + "/resume",
        act="job.resume",
        summary="Let a paused job, or one that broke its circuit, go on; before its `startsAt`, let it start then.",
    )
    async def resume_job(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], job_id: FromPath[str]
    ) -> Response[bytes]:
        app, job = await job_of(self._store, app_id, job_id)
        if is_dry_run(request):
            return await answer_figures(self._store, [job], RESUMABLE)
        resumed = await self._flow.resume(job.key, by=doer_of(request))
        if resumed is None:
            raise await self._explain_unresumable(job)
        return await self._answers.show(resumed, app, exact=True)

    @_move(
        JOB + "/stop",
        act="job.stop",
        summary="End a job for good; what is not sent is dropped. A stopped job stays stopped.",
    )
    async def stop_job(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], job_id: FromPath[str]
    ) -> Response[bytes]:
        app, job = await job_of(self._store, app_id, job_id)
        if is_dry_run(request):
            return await answer_figures(self._store, [job], STOPPABLE)
        stopped = await self._flow.stop(job.key, by=doer_of(request)) or await self._find_stopped(job.id)
        if stopped is None:
            raise await self._explain_forbidden("stop", job)
        return await self._answers.show(stopped, app, exact=True)

    @Route(
        "DELETE", JOB,
        summary="Delete a job that has ended, with all that is stored of it. 202: the rest goes by itself, and the job "
                "is there until then.",
        act="job.delete", who=OPERATE_APP, answers={HTTPStatus.NO_CONTENT: None, HTTPStatus.ACCEPTED: JobView},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def delete_job(self, app_id: FromPath[str], job_id: FromPath[str]) -> Response[Any]:
        app, job = await job_of(self._store, app_id, job_id)
        if await self._removal.remove(job, seconds=REQUEST_SECONDS):
            return bodies.empty()
        return await self._answers.show(job, app, status=HTTPStatus.ACCEPTED)

    async def _find_stopped(self, job_id: str) -> Job | None:
        job = await self._store.jobs.view(job_id)
        return job if job is not None and job.standing.stopped else None

    async def _explain_unresumable(self, job: Job) -> Forbidden:
        now = await self._store.jobs.view(job.id) or job
        if now.credential_id and now.standing.stopped:
            reason = 'cannot resume stopped job: POST …/retry with {"states": ["unsent"]} sends what is left of it'
        else:
            reason = "cannot resume job with status other than paused/circuitbreak"  # as Marathon says it
        return Forbidden(reason, field="status", value=now.status.value)

    async def _explain_forbidden(self, move: str, job: Job) -> Forbidden:
        now = await self._store.jobs.view(job.id) or job
        return Forbidden(f"cannot {move} {now.status} job", field="status", value=now.status.value)
