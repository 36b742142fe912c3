"""How far jobs have come."""

from collections.abc import Sequence

from shared.domain.jobs.batches import Receipt
from shared.domain.jobs.jobs import Job, with_plan
from shared.domain.jobs.progress import Meter, Progress
from shared.domain.jobs.totals import Totals
from shared.store import Store


async def sum_up(store: Store, jobs: Sequence[Job]) -> dict[str, Totals]:
    """The sums of each job by id: those of closed ones as written, those of open ones as they are now."""
    written = {job.id: job.totals for job in jobs if job.totals is not None}
    unwritten = [job.key for job in jobs if job.totals is None]
    counted = await store.batch_sums.totals(unwritten) if unwritten else {}
    return {job.id: written.get(job.id) or with_plan(job, counted.get(job.key, Totals())) for job in jobs}


async def measure(store: Store, job: Job) -> tuple[Totals, Progress]:
    """The sums of one job, by reason, and how fast they grow."""
    totals = (await sum_up(store, [job]))[job.id]
    if not job.open:
        return totals, Progress(Receipt(reasons=job.reasons, locales=job.locales))
    meter = Meter(await store.now())
    async for batch in store.batch_sums.outcomes(job.key):
        meter.add(batch)
    sized = job.divided or not (job.csv_path and job.zone)
    return totals, meter.progress(totals, planned=job.plan.end is not None, sized=sized)
