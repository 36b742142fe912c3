"""The figures of a move of jobs, before anybody makes it."""

from collections.abc import Sequence

from msgspec import Struct

from shared.domain.jobs.jobs import Job
from shared.flow.jobs.progress import sum_up
from shared.store import Store


class MoveFigures(Struct, frozen=True):
    """How many jobs, how many of their devices have got nothing yet, as far as the jobs are planned, and how many of
    the jobs are not planned to their end. `None`: nobody has counted."""

    jobs: int
    devices_not_reached: int | None
    unplanned: int | None


async def sum_unsent(store: Store, jobs: Sequence[Job]) -> MoveFigures:
    """The figures of these jobs. Raises `Unavailable`."""
    totals = await sum_up(store, jobs) if jobs else {}
    left = sum(max(totals[job.id].planned - totals[job.id].done, 0) for job in jobs)
    return MoveFigures(len(jobs), left, sum(job.plan.end is None for job in jobs))
