"""Closing a job: exact totals, summed from its batches, written once.

Completion is counted, never guessed: the plan has its end and every batch is settled. A stopped job closes when
nothing of it is unsettled, wherever its plan stood.
"""

from shared.domain.batches import Receipt
from shared.domain.jobs import Job, Totals
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.store import Store
from shared.store.batches import PlanEnd


class Finish:
    """Closes jobs; doing it twice does nothing more."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def job(self, job_id: str) -> Job | None:
        """The job as it was closed; `None` when it is not ready to be, or was closed before."""
        standing = await self._store.jobs.standing(job_id)
        if standing is None or not standing.may_finish:
            return None
        if standing.stopped:
            await self._end_plan(job_id)
            await self._store.batches.drop_unsent(job_id)
        if await self._store.batches.any_unsettled(job_id):
            return None
        totals = (await self._store.batches.totals([job_id])).get(job_id, Totals())
        summed = Receipt()
        async for receipt in self._store.batches.receipts(job_id):
            summed = summed + receipt
        await fault("finish.after_totals")
        return await self._store.jobs.close(job_id, totals=totals, summed=summed, completed_at=self._clock.now_ns())

    async def _end_plan(self, job_id: str) -> None:
        """Put the end behind the last batch, so that a planner that still cuts adds nothing to a closed job."""
        while True:
            match await self._store.batches.last(job_id):
                case PlanEnd(ordinal=end):
                    await self._store.jobs.end_plan(job_id, end=end)
                    return
                case last:
                    await self._store.batches.add_end(job_id, 0 if last is None else last.ordinal + 1)
