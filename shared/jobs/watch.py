"""Progress and rate of jobs, without reading all of their batches at each look.

A process keeps a few numbers of each batch of the watched jobs, and reads only changes, at most once a second per
job, however many callers look. Newer numbers replace older ones. If there are too many, the job with the oldest
look is dropped.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta

from cachetools import LRUCache
from msgspec import Struct
from msgspec.structs import replace

from shared.core.instants import EPOCH
from shared.jobs.rules.batches import Receipt, Totals
from shared.jobs.rules.jobs import Job, with_plan
from shared.jobs.rules.progress import WINDOW, JobSums, Meter, Progress, RatePoint, pauses_of
from shared.jobs.store_batches import BatchSums
from shared.store import Store
from shared.time import DatabaseTime


async def sum_up(store: Store, jobs: Sequence[Job]) -> dict[str, Totals]:
    written = {job.id: job.totals for job in jobs if job.totals is not None}
    unwritten = [job.key for job in jobs if job.totals is None]
    counted = await store.batch_sums.totals(unwritten) if unwritten else {}
    return {job.id: written.get(job.id) or with_plan(job, counted.get(job.key, Totals())) for job in jobs}


class MoveFigures(Struct, frozen=True):
    """The number of jobs, of their planned devices without a message, and of jobs without a complete plan. `None`: not
    counted."""

    jobs: int
    devices_not_reached: int | None
    unplanned: int | None


async def sum_unsent(store: Store, jobs: Sequence[Job]) -> MoveFigures:
    totals = await sum_up(store, jobs) if jobs else {}
    left = sum(max(totals[job.id].planned - totals[job.id].done, 0) for job in jobs)
    return MoveFigures(len(jobs), left, sum(job.plan.end is None for job in jobs))


FRESH_SECONDS = 1.0
MOST_BATCHES = 500_000
"""The batches that a process remembers; each job counts for a thousand more."""
MOST_LISTED = 50
"""The watched jobs of one list. The totals of the others come from one query, which remembers nothing."""
_BATCHES_PER_JOB = 1_000
_OVERLAP = timedelta(seconds=5)
"""A batch may become visible later than another one with a later time."""


class JobMeasure(Struct, frozen=True):
    """The outcomes of a job's recipients so far, and its rate."""

    totals: Totals
    progress: Progress


class JobWatch:
    def __init__(self, store: Store, time: DatabaseTime) -> None:
        self._store = store
        self._time = time
        self._watched: LRUCache[str, _Watched] = LRUCache(MOST_BATCHES, getsizeof=_size_of)

    async def measure(self, jobs: Sequence[Job]) -> dict[str, JobMeasure]:
        """Totals and progress of each job by id. Open jobs beyond the first `MOST_LISTED` have totals only."""
        begun = [job for job in jobs if job.totals is None and not _has_nothing_cut(job)]
        watched, others = begun[:MOST_LISTED], begun[MOST_LISTED:]
        looks = dict(zip((job.id for job in watched), await asyncio.gather(*map(self._look, watched)), strict=True))
        counted = await self._store.batch_sums.totals([job.key for job in others]) if others else {}
        now = await self._time.now()
        # No await from here on, so that all figures of a job are of one moment.
        counted |= {job.key: looks[job.id].sums.totals for job in watched}
        totals = {job.id: job.totals or with_plan(job, counted.get(job.key, Totals())) for job in jobs}
        return {
            job.id: JobMeasure(totals[job.id], _progress(job, totals[job.id], looks.get(job.id), now)) for job in jobs
        }

    async def read_chart(self, job: Job) -> list[RatePoint]:
        """The chart of a job's rate: as written when the job was closed, or as of now."""
        if not job.open:
            return await self._store.closed_jobs.get_rate(job.key)
        return (await self._look(job)).sums.chart(pauses_of(job.events))

    async def _look(self, job: Job) -> "_Watched":
        watched = self._watched.setdefault(job.key, _Watched(self._store.batch_sums, job.key))
        async with watched.lock:
            if time.monotonic() - watched.read_at >= FRESH_SECONDS:
                await watched.catch_up(job, await self._time.now())
                self._watched[job.key] = watched
            return watched


def _progress(job: Job, totals: Totals, watched: "_Watched | None", now: datetime) -> Progress:
    if watched is None or not job.open:
        return Progress(Receipt(reasons=job.reasons, locales=job.locales))
    sums, meter = watched.sums, Meter(now)
    if job.standing.held:
        return Progress(sums.by_reason)
    for batch in sums.recent:
        meter.add(batch)
    # A batch of messages may take long.
    if job.credential_id and watched.seen:
        seen_at, done = watched.seen[0]
        meter.compare(seen_at, totals.done - done)
    paced = meter.progress(totals, planned=job.plan.end is not None)
    return replace(paced, summed=sums.by_reason)


def _has_nothing_cut(job: Job) -> bool:
    """Whether planning has not begun: lists may be full of jobs that wait for their start."""
    return job.unplanned and job.plan.end is None


class _Watched:
    """The known counts of one job's batches. Each query begins within the known ones, so an empty answer means that
    these batches were removed."""

    def __init__(self, batches: BatchSums, job_key: str) -> None:
        self.lock = asyncio.Lock()
        self.sums = JobSums()
        self.read_at = float("-inf")
        self.seen: deque[tuple[datetime, int]] = deque()
        self._batches = batches
        self._key = job_key
        self._since = EPOCH

    async def catch_up(self, job: Job, now: datetime) -> None:
        """Read what is new. `now` is the database's time: changes during the read are read once more. This time goes
        back if a member with a slow clock takes over; then the read begins where that clock was at the last look."""
        if self.read_at > float("-inf"):
            self._since = min(self._since, now - timedelta(seconds=time.monotonic() - self.read_at) - 2 * _OVERLAP)
        if not (await self._read_changed() and await self._read_added(job)):
            self.sums, self._since = JobSums(), EPOCH
            await self._read_added(job)
        if self.sums.changed_at is not None:
            self._since = min(self.sums.changed_at, now) - _OVERLAP
        self.sums.forget_recent(now - WINDOW)
        if job.standing.held:
            self.seen.clear()  # a rate is measured from the end of the last pause on
        self.seen.append((now, self.sums.totals.done))
        while self.seen[0][0] < now - WINDOW:
            self.seen.popleft()
        self.read_at = time.monotonic()

    async def _read_changed(self) -> bool:
        """Read changes of the known batches; `False` if these are gone."""
        found = self.sums.changed_at is None
        if len(self.sums):
            async for ordinal, counts in self._batches.read_changed(self._key, self._since):
                found = True
                if ordinal in self.sums:
                    self.sums.put(ordinal, counts)
        return found

    async def _read_added(self, job: Job) -> bool:
        """Read the batches behind the known ones; `False` if the known ones are gone."""
        if len(self.sums) == job.plan.end and self.sums.changed_at is not None:
            return True
        found = not len(self.sums)
        async for ordinal, counts in self._batches.read_from(self._key, max(self.sums.last, 0)):
            found = True
            self.sums.put(ordinal, counts)
        return found


def _size_of(watched: _Watched) -> int:
    return min(_BATCHES_PER_JOB + len(watched.sums), MOST_BATCHES)
