"""Grace: a failure that only people can repair is an outage for some minutes before it is final.

Access to a file may be denied, because of wrong credentials or withdrawn rights. A push table or its column may be
gone, as it is for a moment while it is loaded anew. A job must not wait for either silently or for ever. So the first
failure becomes one of the job's events, and the work is tried again as usual. It fails for good after nothing but
failures for the time of grace. Work that meets the same failure after that fails at once. Each worker counts the
failures of each job for itself; one success of the job ends them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from cachetools import LRUCache
from msgspec import Struct

from shared.domain.errors import Denied, Invalid, Unavailable
from shared.domain.jobs.events import READ_FILE, Event, EventState
from shared.domain.jobs.jobs import Job
from shared.runtime.clock import Clock
from shared.store import Store

_REMEMBERED = 1_000


class _Failures(Struct, frozen=True):
    """The first and the last failure of a job's file or table."""

    first: datetime
    last: datetime


class Grace:
    """Remembers since when each job's file or table has failed in this worker."""

    def __init__(self, store: Store, clock: Clock, *, seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._lasts = timedelta(seconds=seconds)
        self._failures: LRUCache[tuple[str, str], _Failures] = LRUCache(_REMEMBERED)

    @asynccontextmanager
    async def give(self, job: Job, *, stage: str) -> AsyncIterator[None]:
        """Work at this stage of the job, which needs its file or its table.

        Raises:
            Unavailable: the file or the table fails; try again. For a file it is `Denied`, a subclass.
            Invalid: it has failed for the whole time of grace, or it is wrong in another way.
        """
        table = job.table
        try:
            yield
        except Denied as error:
            reason = f"{job.csv_path}: {str(error).removeprefix(f'{job.csv_path}: ')}"
            await self._judge(job, job.csv_path, READ_FILE, Invalid(reason, field="csvPath"))
            raise
        except Invalid as error:
            if not _is_about_table(error):
                raise
            await self._judge(job, table, stage, error)
            raise Unavailable(error.reason) from error
        self._failures.pop((job.key, job.csv_path), None)
        self._failures.pop((job.key, table), None)

    async def _judge(self, job: Job, thing: str, stage: str, error: Invalid) -> None:
        now = self._clock.now()
        earlier = self._failures.get((job.key, thing))
        first = now if earlier is None or now - earlier.last > self._lasts else earlier.first
        self._failures[job.key, thing] = _Failures(first, now)
        if now - first >= self._lasts:
            raise Invalid(f"{error.reason}, for {self._minutes()}", field=error.field) from error
        waits = f"{error.reason}; it is tried again for {self._minutes()}"
        await self._store.jobs.note_first(job.key, Event(stage, EventState.FAIL, waits, self._clock.now_ns()))

    def _minutes(self) -> str:
        return f"{self._lasts / timedelta(minutes=1):g} minutes"


def _is_about_table(error: Invalid) -> bool:
    """Whether the push database lacks something that the job needs."""
    field = error.field or ""
    return field == "app" or field.partition(".")[0] == "filters"
