"""The circuit breaker: if too many batches of a job fail, the job is held before the rest fails too."""

import structlog

from shared.domain.jobs.breaking import breaks
from shared.domain.jobs.events import SEND, TRIP, DueMail, Event, EventState, Milestone
from shared.domain.jobs.jobs import Job, JobStatus
from shared.domain.jobs.mails import MailKind
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.runtime.metrics import JOBS_TRIPPED
from shared.store import Store

log = structlog.get_logger(__name__)

_RUNNING = frozenset({JobStatus.RUNNING})


class Breaker:
    """Holds jobs with too many failed batches. An extra look does no harm. `role` is the role of the process."""

    def __init__(self, store: Store, clock: Clock, *, role: str, max_failed_share: float, mails: bool) -> None:
        self._store = store
        self._clock = clock
        self._role = role
        self._max_failed_share = max_failed_share
        self._mails = mails

    async def look(self, job_id: str) -> Job | None:
        """Returns the job if this call held it."""
        await fault("breaker.before_look")
        if not await self._store.batch_sums.has_failed(job_id):
            return None
        job = await self._store.jobs.view(job_id)
        if job is None or not job.standing.feeds:
            return None
        counts = await self._store.batch_sums.counts(job.key)
        planned = job.plan.end is not None
        share = self._max_failed_share
        if not breaks(counts, forgiven=job.forgiven, planned=planned, max_failed_share=share):
            return None
        now = self._clock.now_ns()
        message = f"{counts.failed - job.forgiven} of {counts.planned} batches failed"
        tripped = await self._store.jobs.move(
            job_id,
            to=JobStatus.TRIPPED,
            only=_RUNNING,
            at=now,
            # A caller who has resumed the job since has forgiven the failures counted here.
            still_forgiven=job.forgiven,
            events=[Event(SEND, EventState.FAIL, message, now)],
            mail=DueMail(MailKind.TRIPPED, now) if self._mails else None,
            milestone=Milestone(TRIP, await self._store.now(), self._role, message),
        )
        if tripped is not None:
            JOBS_TRIPPED.inc()
            log.warning("job held", job_id=job_id, reason=message)
        return tripped
