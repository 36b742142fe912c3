"""Totals of jobs, read anew. A caller that looks repeatedly uses `JobWatch`."""

from collections.abc import Sequence

from shared.domain.jobs.jobs import Job, with_plan
from shared.domain.jobs.totals import Totals
from shared.store import Store


async def sum_up(store: Store, jobs: Sequence[Job]) -> dict[str, Totals]:
    """The totals of each job by id: closed jobs as written, open jobs as of now."""
    written = {job.id: job.totals for job in jobs if job.totals is not None}
    unwritten = [job.key for job in jobs if job.totals is None]
    counted = await store.batch_sums.totals(unwritten) if unwritten else {}
    return {job.id: written.get(job.id) or with_plan(job, counted.get(job.key, Totals())) for job in jobs}
