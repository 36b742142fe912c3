"""The finisher: closes a job whose batches are all settled."""

import structlog

from services.worker.stage import Stage
from shared.domain.jobs.tasks import FinishJob
from shared.flow.jobs.feed import Feed
from shared.flow.jobs.finish import Finish
from shared.runtime.metrics import JOBS_CLOSED

log = structlog.get_logger(__name__)


class Finisher(Stage[FinishJob]):
    """The stage behind `push.finish`."""

    task = FinishJob

    def __init__(self, finish: Finish, feed: Feed, *, in_flight: int) -> None:
        self.in_flight = in_flight
        self._finish = finish
        self._feed = feed

    async def run(self, task: FinishJob) -> None:
        """Close the job if it is ready."""
        job = await self._finish.job(task.job_id)
        if job is not None and job.totals is not None:
            JOBS_CLOSED.labels(job.status).inc()
            await self._feed.mails(job)
            log.info("job closed", job_id=job.id, status=job.status, sent=job.totals.sent, failed=job.totals.failed)

    async def put_off(self, task: FinishJob) -> None:
        await self._feed.put_off(task)

    async def give_up(self, task: FinishJob, reason: str) -> None:
        """Leave it to upkeep: only the sum is missing."""
        log.error("job cannot be closed", job_id=task.job_id, reason=reason)
