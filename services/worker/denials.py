"""Files that we are denied: wrong credentials, or rights that somebody took away.

Only people can mend that, so a job must not wait for them silently, nor for ever. The first denial stands among the
job's events. The work is tried again as all work is, and ends as a fault of the file once nothing but denials have come
for ten minutes. Each worker counts these for itself; one answer ends them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from services.worker.recipients import Reader, Recipients
from shared.audience import Audience
from shared.blobs import Blobs
from shared.domain.batches import Batch
from shared.domain.errors import Denied, Invalid
from shared.domain.jobs import READ_FILE, Event, EventState, Job
from shared.runtime.clock import Clock
from shared.store import Store

TRIED_FOR = timedelta(minutes=10)


class Denials:
    """Since when each path has been denied to this worker."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._since: dict[str, datetime] = {}

    @asynccontextmanager
    async def watching(self, job: Job) -> AsyncIterator[None]:
        """What is done with the job's file. Raises `Invalid` in the place of a denial that has lasted for too long."""
        try:
            yield
        except Denied as error:
            await self._judge(job, str(error).removeprefix(f"{job.csv_path}: "))
            raise
        self._since.pop(job.csv_path, None)

    async def _judge(self, job: Job, reason: str) -> None:
        now = self._clock.now()
        if now - self._since.setdefault(job.csv_path, now) >= TRIED_FOR:
            del self._since[job.csv_path]
            raise Invalid(f"{job.csv_path}: {reason}, for {_minutes()} minutes", field="csvPath")
        waits = f"{job.csv_path}: {reason}; it is tried again for {_minutes()} minutes"
        await self._store.jobs.note_first(job.id, Event(READ_FILE, EventState.FAIL, waits, self._clock.now_ns()))


class WatchingReader(Reader):
    """Reads recipients, and has an eye on denials."""

    def __init__(self, audience: Audience, blobs: Blobs, denials: Denials) -> None:
        super().__init__(audience, blobs)
        self._denials = denials

    async def recipients(self, job: Job, batch: Batch) -> Recipients:
        async with self._denials.watching(job):
            return await super().recipients(job, batch)


def _minutes() -> int:
    return TRIED_FOR // timedelta(minutes=1)
