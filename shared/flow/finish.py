"""Closing a job: exact totals, summed from its batches, written once.

Completion is counted, never guessed: the plan has its end and every batch is settled. A stopped job closes when
nothing of it is unsettled, wherever its plan stood.
"""

from shared.domain.batches import Receipt
from shared.domain.jobs import Job, Totals
from shared.runtime.clock import Clock
from shared.runtime.faults import fault
from shared.store import Store


class Finish:
    """Closes jobs; doing it twice does nothing more."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def job(self, job_id: str) -> Job | None:
        """The job as it was closed; `None` when it is not ready to be, or was closed before."""
        standing = await self._store.jobs.standing(job_id)
        if standing is None or not standing.may_finish or await self._store.batches.any_unsettled(job_id):
            return None
        totals = (await self._store.batches.totals([job_id])).get(job_id, Totals())
        summed = Receipt()
        async for receipt in self._store.batches.receipts(job_id):
            summed = summed + receipt
        await fault("finish.after_totals")
        return await self._store.jobs.close(job_id, totals=totals, summed=summed, completed_at=self._clock.now_ns())
