"""How fast jobs go, without reading all that they settled at each look.

A process keeps what it knows of each settled batch, a few numbers by ordinal, and reads only what changed since, at
most once a second for a job, however many look. What is newer replaces what was known.
"""

import asyncio
import time
from datetime import datetime, timedelta

from cachetools import LRUCache

from shared.domain.jobs.jobs import Job
from shared.domain.jobs.rate_chart import RatePoint, SettledAt, rate_chart
from shared.store import Store

FRESH_SECONDS = 1.0
JOBS = 64
_OVERLAP = timedelta(seconds=5)
"""A batch may become visible later than another one with a later time."""


class JobWatch:
    """Watches jobs. Raises `Unavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watched: LRUCache[str, _Watched] = LRUCache(JOBS)

    async def look(self, job: Job) -> list[RatePoint]:
        """The chart of a job's rate: as it was written when the job was closed, or as it is now."""
        if not job.open:
            return await self._store.closed_jobs.get_rate(job.key)
        watched = self._watched.setdefault(job.key, _Watched())
        async with watched.lock:
            if time.monotonic() - watched.looked_at >= FRESH_SECONDS:
                await self._read(job.key, watched)
        return watched.chart

    async def _read(self, job_key: str, watched: "_Watched") -> None:
        since = watched.until and watched.until - _OVERLAP
        async for ordinal, settled in self._store.batch_sums.read_settled_since(job_key, since):
            watched.settled[ordinal] = settled
            watched.until = max(watched.until or settled.at, settled.at)
        watched.chart = rate_chart(watched.settled.values())
        watched.looked_at = time.monotonic()


class _Watched:
    """What is known of one job."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.settled: dict[int, SettledAt] = {}
        self.until: datetime | None = None
        self.looked_at = float("-inf")
        self.chart: list[RatePoint] = []
