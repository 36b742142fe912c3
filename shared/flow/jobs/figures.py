"""The figures of a move of jobs, before the move."""

from collections.abc import Sequence

from msgspec import Struct

from shared.domain.jobs.jobs import Job
from shared.flow.jobs.progress import sum_up
from shared.store import Store


class MoveFigures(Struct, frozen=True):
    """The number of jobs, of their planned devices without a message, and of jobs without a complete plan. `None`: not
    counted."""

    jobs: int
    devices_not_reached: int | None
    unplanned: int | None


async def sum_unsent(store: Store, jobs: Sequence[Job]) -> MoveFigures:
    """The figures of these jobs."""
    totals = await sum_up(store, jobs) if jobs else {}
    left = sum(max(totals[job.id].planned - totals[job.id].done, 0) for job in jobs)
    return MoveFigures(len(jobs), left, sum(job.plan.end is None for job in jobs))
