"""How far jobs have come and how fast they go, without reading all of their batches at each look.

A process keeps a few numbers of each batch of the jobs that are looked at, and reads only what changed since, at most
once a second for a job, however many look. What is newer replaces what was known. A job that nobody has looked at for
longest is forgotten where there are too many.
"""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from cachetools import LRUCache
from msgspec.structs import replace

from shared.domain.instants import EPOCH
from shared.domain.jobs.batches import Receipt
from shared.domain.jobs.jobs import Job, with_plan
from shared.domain.jobs.progress import WINDOW, Meter, Progress
from shared.domain.jobs.rate_chart import RatePoint
from shared.domain.jobs.sums import JobSums
from shared.domain.jobs.totals import Totals
from shared.flow.time import DatabaseTime
from shared.store import Store
from shared.store.jobs.batch_sums import BatchSums

FRESH_SECONDS = 1.0
MOST_BATCHES = 500_000
"""As many batches are known at once, with a thousand for each job."""

_A_JOB = 1_000
_OVERLAP = timedelta(seconds=5)
"""A batch may become visible later than another one with a later time."""


class JobWatch:
    """Watches jobs. What it tells of an open one is up to a second old. Raises `Unavailable`."""

    def __init__(self, store: Store, time: DatabaseTime) -> None:
        self._store = store
        self._time = time
        self._watched: LRUCache[str, _Watched] = LRUCache(MOST_BATCHES, getsizeof=_weigh)

    async def sum_up(self, jobs: Sequence[Job]) -> dict[str, Totals]:
        """The sums of each job by id: those of closed ones as written, those of open ones as they are."""
        return dict(zip([job.id for job in jobs], await asyncio.gather(*map(self._sum, jobs)), strict=True))

    async def measure(self, job: Job) -> tuple[Totals, Progress]:
        """The sums of one job, by reason, and how fast they grow."""
        if not job.open:
            return await self._sum(job), Progress(Receipt(reasons=job.reasons, locales=job.locales))
        meter = Meter(await self._time.now())
        sums = await self._look(job)
        for batch in sums.recent:
            meter.add(batch)
        totals = with_plan(job, sums.totals)
        sized = job.divided or not (job.csv_path and job.zone)
        paced = meter.progress(totals, planned=job.plan.end is not None, sized=sized)
        return totals, replace(paced, summed=sums.by_reason)

    async def read_chart(self, job: Job) -> list[RatePoint]:
        """The chart of a job's rate: as it was written when the job was closed, or as it is now."""
        if not job.open:
            return await self._store.closed_jobs.get_rate(job.key)
        return (await self._look(job)).chart()

    async def _sum(self, job: Job) -> Totals:
        if job.totals is not None:
            return job.totals
        # Nothing is cut before planning begins, and lists may be full of jobs that wait for their start.
        nothing_cut = job.unplanned and job.plan.end is None
        return with_plan(job, Totals() if nothing_cut else (await self._look(job)).totals)

    async def _look(self, job: Job) -> JobSums:
        watched = self._watched.setdefault(job.key, _Watched(self._store.batch_sums, job.key))
        async with watched.lock:
            if time.monotonic() - watched.read_at >= FRESH_SECONDS:
                await watched.catch_up(job, await self._time.now())
                self._watched[job.key] = watched
            return watched.sums


class _Watched:
    """What is known of one job's batches. Each query begins at what is known, so one that finds nothing tells that
    these batches have been removed."""

    def __init__(self, batches: BatchSums, job_key: str) -> None:
        self.lock = asyncio.Lock()
        self.sums = JobSums()
        self.read_at = float("-inf")
        self._batches = batches
        self._key = job_key
        self._since = EPOCH

    async def catch_up(self, job: Job, now: datetime) -> None:
        """Read what is new. `now` is the database's time: what changes while we read is read once more."""
        if not (await self._read_changed() and await self._read_added(job)):
            self.sums, self._since = JobSums(), EPOCH
            await self._read_added(job)
        if self.sums.changed_at is not None:
            self._since = min(self.sums.changed_at, now) - _OVERLAP
        self.sums.forget_recent(now - WINDOW)
        self.read_at = time.monotonic()

    async def _read_changed(self) -> bool:
        found = self.sums.changed_at is None
        if len(self.sums):
            async for ordinal, counts in self._batches.read_changed(self._key, self._since):
                found = True
                if ordinal in self.sums:
                    self.sums.put(ordinal, counts)
        return found

    async def _read_added(self, job: Job) -> bool:
        if len(self.sums) == job.plan.end and self.sums.changed_at is not None:
            return True
        found = not len(self.sums)
        async for ordinal, counts in self._batches.read_from(self._key, max(self.sums.last, 0)):
            found = True
            self.sums.put(ordinal, counts)
        return found


def _weigh(watched: _Watched) -> int:
    return min(_A_JOB + len(watched.sums), MOST_BATCHES)
