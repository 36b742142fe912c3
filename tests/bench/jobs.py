"""Watching a job from outside while it runs, with little load of our own, and whether its sums are right."""

import asyncio
from collections.abc import Callable
from time import monotonic

from shared.jobs.rules.batches import Totals
from shared.jobs.rules.jobs import Job, JobStatus
from tests.bench.report import Wrong
from tests.e2e.house import House


async def until(house: House, job_id: str, condition: Callable[[Job], bool], *, every: float, seconds: float) -> Job:
    """Look at the job every so often until it is as wanted. Raises `Wrong` when that takes too long."""
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        job = await house.servers.store.jobs.get(job_id)
        if job is not None and condition(job):
            return job
        await asyncio.sleep(every)
    raise Wrong(f"job {job_id} took over {seconds:g} s: {await house.servers.store.jobs.get(job_id)}\n{house.logs()}")


async def closed(house: House, job_id: str, *, every: float = 0.1, seconds: float = 180) -> Job:
    """Wait until nothing is left to do for the job."""
    return await until(house, job_id, lambda job: not job.open, every=every, seconds=seconds)


def check_sums(job: Job, devices: int) -> None:
    """Raise `Wrong` unless the completed job sent to all devices."""
    sums = job.totals or Totals()
    right = (sums.planned, sums.sent, sums.failed) == (devices, devices, 0)
    if job.status is not JobStatus.COMPLETED or not right:
        raise Wrong(f"the job should have sent {devices:,} records: {job.status}, {sums}, {job.reasons}")
