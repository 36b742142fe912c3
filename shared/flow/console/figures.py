"""What a move of jobs would do, in figures, before anybody does it."""

from collections.abc import Sequence

from msgspec import Struct

from shared.domain.console.bulk_actions import BulkAct, BulkFilter
from shared.domain.jobs.jobs import Job
from shared.flow.console.bulk_things import statuses_for
from shared.flow.jobs.progress import sum_up
from shared.store import Store

SUMMED = 500
"""For more jobs than these, devices are not summed up."""


class StopFigures(Struct, frozen=True):
    """How many devices would not be reached, as far as jobs are planned, and how many jobs are not. `None`: nobody has
    counted."""

    devices_not_reached: int | None
    unplanned: int | None


class Figures:
    """Tells figures. Raises `Unavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def sum_jobs(self, jobs: Sequence[Job]) -> StopFigures:
        """What stopping these jobs would keep from being sent."""
        totals = await sum_up(self._store, jobs)
        left = sum(max(totals[job.id].planned - totals[job.id].done, 0) for job in jobs)
        return StopFigures(left, sum(job.plan.end is None for job in jobs))

    async def sum_filter(self, filter: BulkFilter) -> StopFigures:
        """What stopping all jobs that a filter matches would keep from being sent."""
        statuses = statuses_for(BulkAct.STOP_JOBS, filter)
        keys = await self._store.bulk_jobs.keys(statuses, filter, before=2**63 - 1, limit=SUMMED)
        if keys.more:
            return StopFigures(None, None)
        return (
            await self.sum_jobs(list((await self._store.jobs.with_ids(keys)).values())) if keys else StopFigures(0, 0)
        )
