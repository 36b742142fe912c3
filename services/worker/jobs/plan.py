"""The planner: cuts a job's audience into batches, a page at a time, and feeds while it cuts.

    begin ──> cut ──> add ──> feed ──> end
               └<──────────────┘

Any planner can continue a plan. Its templates and source are fixed before the first cut, batches are inserted in order
and never changed, and the end is an entry too. A planner that finds an entry taken was overtaken; it reads the last one
and continues there.
"""

from collections.abc import Sequence
from contextlib import aclosing

import structlog

from services.worker.jobs.cuts import Cuts
from services.worker.jobs.cutting import PlannedBatch
from services.worker.jobs.grace import Grace
from services.worker.jobs.plan_inputs import PlanInputs
from services.worker.jobs.recipient_limit import RecipientLimit, count_planned
from services.worker.stage import Stage
from shared.domain.errors import Invalid, Unavailable
from shared.domain.jobs.batches import Batch
from shared.domain.jobs.events import PLAN, READ_FILE, SEND_DIRECT, Event, EventState
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.tasks import PlanJob
from shared.flow.jobs.breaker import Breaker
from shared.flow.jobs.feed import Feed
from shared.flow.jobs.jobs import JobFlow
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.store import Store
from shared.store.jobs.batches import PlanEnd

log = structlog.get_logger(__name__)


class Planner(Stage[PlanJob]):
    """The stage behind `push.split`."""

    task = PlanJob

    def __init__(
        self,
        store: Store,
        inputs: PlanInputs,
        cuts: Cuts,
        feed: Feed,
        flow: JobFlow,
        breaker: Breaker,
        grace: Grace,
        clock: Clock,
        *,
        in_flight: int,
    ) -> None:
        self.in_flight = in_flight
        self._store = store
        self._inputs = inputs
        self._cuts = cuts
        self._feed = feed
        self._flow = flow
        self._breaker = breaker
        self._grace = grace
        self._clock = clock
        self._stopping = False

    async def run(self, task: PlanJob) -> None:
        """Plan the job to its end, or until it is stopped."""
        job = await self._store.jobs.get(task.job_id)
        if job is None or job.ended:
            return
        with structlog.contextvars.bound_contextvars(job_id=job.id):
            try:
                async with self._grace.give(job, stage=PLAN):
                    await self._plan(await self._inputs.fix(job))
            except Invalid as error:
                log.error("job cannot be planned", reason=error.reason)
                await self._stop_job(job, error)

    async def put_off(self, task: PlanJob) -> None:
        await self._feed.put_off(task)

    async def give_up(self, task: PlanJob, reason: str) -> None:
        """Stop a job that cannot be planned."""
        await self._flow.stop(task.job_id, failure=f"planning failed: {reason}", stage=PLAN)

    def stop(self) -> None:
        """End the plans in hand after their present page; other workers continue them."""
        self._stopping = True

    async def _plan(self, job: Job) -> None:
        size, named = self._inputs.batch_size(job), self._inputs.named_columns(job)
        while not isinstance(last := await self._store.batches.last(job.key), PlanEnd):
            ordinal = 0 if last is None else last.ordinal + 1
            limit = RecipientLimit(named, await count_planned(self._store, job) if last and named else 0)
            async with aclosing(self._cuts.pages(job, last, size, named)) as pages:
                async for page in pages:
                    limit.add(page)
                    if page:
                        if not await self._store.batches.add_page(_batches(job.key, ordinal, page)):
                            # Another planner is ahead.
                            break
                        ordinal += len(page)
                        await fault("plan.after_page")
                        await self._feed.feed_job(job.key)
                    await self._store.jobs.touch(job.key)
                    if await self._end_if_stopped(job):
                        return
                    if self._stopping:
                        raise Unavailable("this process is stopping; the plan goes on elsewhere")
                else:
                    await fault("plan.before_end")
                    await self._store.batches.add_end(job.key, ordinal)
        await self._end(job, last.ordinal)

    async def _end(self, job: Job, batches: int) -> None:
        """Store the number of batches of the plan, and close the job if all are settled."""
        now = self._clock.now_ns()
        read = [Event(READ_FILE, EventState.SUCCESS, "finished", now)] if job.csv_path else []
        unknown, about = await self._cuts.sum_up(job, await count_planned(self._store, job))
        messages = (*about, f"complete part {batches} of {batches}")
        planned = (Event(PLAN, EventState.SUCCESS, message, now) for message in messages)
        await self._store.jobs.end_plan(job.key, end=batches, unknown=unknown, events=[*read, *planned])
        await self._breaker.look(job.key)
        await self._feed.feed_job(job.key)
        log.info("planned", batches=batches)

    async def _end_if_stopped(self, job: Job) -> bool:
        standing = await self._store.jobs.get_standing(job.key)
        if standing is not None and not standing.stopped:
            return False
        await self._flow.drop_unsent(job.key, job.round)
        return True

    async def _stop_job(self, job: Job, error: Invalid) -> None:
        if not job.csv_path:
            await self._flow.stop(job.key, failure=error.reason, stage=SEND_DIRECT)
        elif error.field == "csvPath":
            await self._flow.stop_over_file(job, error.reason)
        else:
            await self._flow.stop(job.key, failure=error.reason, stage=READ_FILE)


def _batches(job_id: str, first: int, page: Sequence[PlannedBatch]) -> list[Batch]:
    return [
        Batch(job_id=job_id, ordinal=ordinal, range=planned.range, size=planned.size, whole=planned.whole)
        for ordinal, planned in enumerate(page, first)
    ]
