"""`/apps/{appId}/jobs/{jobId}/batches` and `/rate`: how the parts of a job stand, and how fast it went."""

from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.http import paging, wire
from services.api.http.rights import VIEW_APP
from services.api.http.routes import Parameter, Resource, Route
from services.api.http.wire import Timestamp
from services.api.jobs.jobs import JOB, job_of
from shared.domain.instants import format_instant, format_maybe
from shared.domain.jobs.batches import Batch, BatchStatus, top
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.rate_chart import POINTS
from shared.flow.jobs.watch import JobWatch
from shared.store import Store

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
    """How fast a job went: at most 120 points of like length. It is empty for a job that was closed by 0.1.0."""

    points: list[RatePointView]


class BatchesResource(Resource):
    """The routes of a job's batches."""

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
        return wire.answer([_batch_view(batch, job) for batch in batches], headers=headers)

    @Route(
        "GET", JOB + "/rate", summary=f"Tell how fast a job went, in at most {POINTS} points.",
        who=VIEW_APP, answers={HTTPStatus.OK: RateView}, problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def get_job_rate(self, app_id: FromPath[str], job_id: FromPath[str]) -> Response[bytes]:
        _, job = await job_of(self._store, app_id, job_id)
        chart = await self._watch.read_chart(job)
        points = [RatePointView(at=format_instant(point.at), per_second=point.per_second) for point in chart]
        return wire.answer(RateView(points))


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
