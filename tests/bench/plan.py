"""Cutting a filtered audience into batches, with sending paused: the job is held from its first instant."""

from itertools import pairwise
from time import perf_counter

from shared.audience.rules.audiences import KeyRange
from shared.jobs.rules.batches import Batch
from shared.jobs.rules.jobs import JobStatus
from tests.bench.audience import KEPT, fill
from tests.bench.jobs import closed, until
from tests.bench.machine import memory
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.e2e.house import House


async def measure(place: Place) -> list[Measured]:
    """A million rows, kept out of 1.2 million by a filter on a column without an index."""
    seconds = []
    async with place.house() as house:
        await fill(house, place.devices * 6 // 5)
        worker = await house.start("worker")
        for _ in range(place.repeat):
            job = house.job(status=JobStatus.PAUSED, filters=KEPT)
            began = perf_counter()
            await house.jobs.start(job)
            planned = await until(house, job.id, lambda job: job.plan.end is not None, every=0.01, seconds=120)
            seconds.append(perf_counter() - began)
            await _check(house, job.id, planned.plan.end or 0, place.devices)
            await house.jobs.stop(job.id)
            await closed(house, job.id)
        peak = memory(worker.pid).peak
    figures = [
        Figure(f"planning {place.devices:,} filtered rows", seconds, "s", Target(5, at_most=True)),
        Figure("rows cut", [place.devices / each for each in seconds], "rows/s"),
        Figure("worker, peak memory", [peak], "MB", Target(200, at_most=True)),
    ]
    note = (
        f"From storing the job to its plan's end; {place.devices * 6 // 5:,} rows, of which the filter keeps five of "
        "six. Checked: the batches follow each other without a gap and their sizes add up."
    )
    return [Measured("plan", figures, [note])]


async def _check(house: House, job_id: str, end: int, rows: int) -> None:
    batches = [await house.servers.store.batches.get(job_id, ordinal) for ordinal in range(end)]
    whole = [batch for batch in batches if isinstance(batch, Batch)]
    ranges = [(batch.ordinal, batch.range) for batch in whole if isinstance(batch.range, KeyRange)]
    gaps = [ordinal for (_, early), (ordinal, late) in pairwise(ranges) if early.upto != late.after]
    planned = sum(batch.size for batch in whole)
    if len(whole) != end or gaps or planned != rows:
        raise Wrong(f"{len(whole)} of {end} batches, {planned:,} of {rows:,} rows, gaps before batches {gaps[:5]}")
