"""Closing a job: exact totals, summed from its batches, and the file of its control group, each written once.

Completion is counted: the plan has its end, and as many batches are settled as it says. A stopped job closes once
all its batches are settled, wherever its plan ends. If the file cannot be written, the job closes with a `fail`
event.

The circuit breaker holds a job if too many of its batches fail, before the rest fails too.
"""

import structlog

from shared.jobs.kinds import JobKinds, Written
from shared.jobs.rules.batches import Receipt, Totals, breaks
from shared.jobs.rules.events import (
    COMPLETE,
    FINISH,
    SEND,
    SEND_ENDED,
    TRIP,
    DueMail,
    Event,
    EventState,
    Milestone,
    stop_of,
)
from shared.jobs.rules.jobs import STOPPABLE, Job, JobStatus, with_plan
from shared.jobs.rules.mails import MailKind
from shared.jobs.rules.progress import SettledAt, pauses_of, rate_chart
from shared.jobs.store_batches import PlanEnd
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


class Finish:
    """Closes jobs; a second call does nothing. `role` is the role of the process."""

    def __init__(
        self, store: Store, kinds: JobKinds, breaker: Breaker, clock: Clock, *, role: str, mails: bool
    ) -> None:
        self._store = store
        self._breaker = breaker
        self._clock = clock
        self._kinds = kinds
        self._role = role
        self._mails = mails

    async def job(self, job_id: str) -> Job | None:
        """Close the job; `None` if it is not ready or already closed."""
        job = await self._ready(job_id)
        if job is None or (job.standing.feeds and await self._breaker.look(job.key)):
            return None
        totals = with_plan(job, (await self._store.batch_sums.totals([job.key])).get(job.key, Totals()))
        summed, receipts, times = Receipt(), 0, []
        async for batch in self._store.batch_sums.outcomes(job.key):
            summed, receipts = summed + batch.receipt, receipts + 1
            if batch.changed_at is not None:
                times.append(SettledAt(batch.receipt.recipients, batch.taken_at, batch.changed_at))
        # A server that answers with an older state, as a new primary may, leaves batches out.
        if not totals.settled == receipts == job.plan.end:
            return None
        await fault("finish.after_totals")
        if await self._knows_no_user(job, totals):
            await self._stop(job, totals)
        await self._store.closed_jobs.keep_rate(job.key, rate_chart(times, pauses_of(job.events)))
        return await self._close(job, totals, summed)

    async def _ready(self, job_id: str) -> Job | None:
        """The job if all its batches are settled."""
        job = await self._store.jobs.view(job_id)
        if job is None or not job.standing.may_finish:
            return None
        if job.standing.stopped:
            await self._end_plan(job.key)
            await self._store.batches.drop_unsent(job.key, job.round)
            job = await self._store.jobs.view(job.key)
        if job is None or job.plan.end is None or await self._store.batches.has_unsettled(job.key):
            return None
        return job

    async def _close(self, job: Job, totals: Totals, summed: Receipt) -> Job | None:
        written = await self._kinds.of(job.service).write_at_end(job)
        await fault("finish.after_file")
        now, left = self._clock.now_ns(), totals.planned - totals.done
        # Batches of a job that was not stopped are dropped for this reason alone.
        is_late = job.expires_at and left and not job.standing.stopped
        expired = f"{left:,} of {totals.planned:,} recipients got nothing by expiresAt" if is_late else ""
        return await self._store.jobs.close(
            job.key,
            totals=totals,
            summed=summed,
            completed_at=now,
            expired=expired,
            round=job.round,
            control_group_csv_path=written.path,
            events=_events(written, now),
            failures=[Event(FINISH, EventState.FAIL, written.failure, now)] if written.failure else (),
            mail=DueMail(MailKind.COMPLETED, now) if self._mails else None,
            milestone=Milestone(COMPLETE, await self._store.now(), self._role, expired),
        )

    async def _knows_no_user(self, job: Job, totals: Totals) -> bool:
        if not job.csv_path or not totals.unknown or not job.standing.feeds:
            return False
        plan = await self._store.files.plan(job.file_plan_id)
        return plan is not None and totals.unknown == plan.users

    async def _stop(self, job: Job, totals: Totals) -> None:
        """Stop a job in whose file no user is known: the file is a mistake. The job has a completion time all the same,
        as in Marathon."""
        now = self._clock.now_ns()
        failure = f"none of the {totals.unknown:,} users in the file has a device"
        await self._store.jobs.move(
            job.key,
            to=JobStatus.STOPPED,
            only=STOPPABLE,
            at=now,
            failure=failure,
            completed_at=now,
            events=[Event(SEND, EventState.FAIL, failure, now)],
            milestone=stop_of(await self._store.now(), self._role, failure=failure),
        )

    async def _end_plan(self, job_id: str) -> None:
        """Add the end behind the last batch, so that a planner that still cuts adds nothing to a closed job."""
        while True:
            match await self._store.batches.last(job_id):
                case PlanEnd(ordinal=end):
                    await self._store.jobs.end_plan(job_id, end=end)
                    return
                case last:
                    await self._store.batches.add_end(job_id, 0 if last is None else last.ordinal + 1)


def _events(written: Written, now: int) -> list[Event]:
    ended = Event(SEND_ENDED, EventState.SUCCESS, "Finished all batches", now)
    if written.failure:
        return [ended]
    writing = [Event(FINISH, EventState.RUNNING, "sending control group", now)] if written.path else []
    return [ended, *writing, Event(FINISH, EventState.SUCCESS, "finished", now)]
