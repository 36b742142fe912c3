"""Figures of credentials and message jobs, and forecasts of their end: read at most once a second for each, however
many callers look. A gauge of the whole deployment counts the credentials that send nothing although jobs wait for them.
"""

from collections import Counter
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from shared.core.errors import NotFound
from shared.core.instants import ms
from shared.jobs.rules.jobs import Job, JobStatus
from shared.messages.rules.credentials import (
    Credential,
    CredentialStanding,
    CredentialStatus,
    SendOrder,
    queue_of,
    standing_at,
)
from shared.messages.rules.jobs import Ahead, Forecast, MessageCounts, forecast, moves_on, options_of, share_of
from shared.messages.rules.pacing import effective_rate
from shared.runtime.cached import CachedByKey
from shared.runtime.metrics import CREDENTIALS_BLOCKED
from shared.store import Store

JOBS_COUNTED = 1_000
"""The most open jobs that are counted, oldest first."""


class CredentialFigures:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._standings = CachedByKey[CredentialStanding]()

    async def measure(self, credential_id: str) -> CredentialStanding:
        """The figures, up to a second old."""
        return await self._standings.get(credential_id, lambda: self._read(credential_id))

    async def _read(self, credential_id: str) -> CredentialStanding:
        traffic = await self._store.credentials.get_traffic(credential_id)
        if traffic is None:
            raise NotFound("there is no credential with this id", field="credentialId", value=credential_id)
        jobs = await self._store.message_jobs.find_waiting(credential_id, limit=JOBS_COUNTED)
        unsent = await self._store.message_sums.count_unsent_of([job.key for job in jobs])
        return standing_at(traffic, queue_of(jobs, unsent), await self._store.now())


_JOBS_LOOKED_AT = 200


class JobFigures(Struct, frozen=True):
    """The messages of a job, counted while the job was as `standing` says, and the forecast of their end."""

    counts: MessageCounts
    forecast: Forecast
    standing: tuple[JobStatus, bool, int]


class MessageFigures:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._figures = CachedByKey[JobFigures]()

    async def measure(self, job: Job, *, exact: bool = False) -> JobFigures:
        """The figures of the job, up to a second old but never older than its last move; `exact`: read after this call.
        If `counts.round` is not the job's, the job was reopened since it was read."""
        figures = await self._figures.get(job.key, lambda: self._read(job), seconds=0 if exact else None)
        if figures.standing != _standing_of(job):
            figures = await self._figures.get(job.key, lambda: self._read(job), seconds=0)
        return figures

    async def foresee(self, job: Job, messages: int) -> Forecast:
        now = await self._store.now()
        counts = MessageCounts(planned=messages)
        return forecast(job, counts, await self._look_ahead(job, now), now=now)

    async def _read(self, job: Job) -> JobFigures:
        counts = await self.count(job)
        now = await self._store.now()
        sends = moves_on(job) and not options_of(job).dry_run
        ahead = await self._look_ahead(job, now) if sends else Ahead()
        return JobFigures(counts, forecast(job, counts, ahead, now=now), _standing_of(job))

    async def count(self, job: Job) -> MessageCounts:
        counts = await self._store.message_sums.count(job.key)
        plan = await self._store.files.plan(job.file_plan_id) if job.csv_path else None
        return counts if plan is None else replace(counts, duplicates=plan.repeated)

    async def _look_ahead(self, job: Job, now: datetime) -> Ahead:
        traffic = await self._store.credentials.get_traffic(job.credential_id)
        if traffic is None:
            return Ahead()
        rate = effective_rate(traffic.pace, traffic.rate, ms(now) * 1_000) if traffic.flows else 0.0
        running = await self._store.message_jobs.find_running(job.credential_id, limit=_JOBS_LOOKED_AT)
        others = [one for one in running if one.key != job.key]
        if traffic.order is SendOrder.SHARES:  # all send at a time, each at its share of the rate
            part = share_of(options_of(job).share, {one.key: one.share for one in others})
            return Ahead(rate=rate * part)
        older = [one.key for one in others if (one.created_at, one.key) < (job.created_at, job.key)]
        return Ahead(len(older), await self._store.message_sums.count_unsent(older), rate)


def _standing_of(job: Job) -> tuple[JobStatus, bool, int]:
    return job.status, job.open, job.round


INTERVAL_SECONDS = 60.0
_PAGE = 100


class CredentialGauges:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def read_once(self) -> None:
        """Count once. If the store is away, the gauge is empty rather than old."""
        try:
            counts = Counter(credential.status for credential in await find_blocked(self._store))
        finally:
            CREDENTIALS_BLOCKED.clear()
        for status in CredentialStatus:
            if not status.sends:
                CREDENTIALS_BLOCKED.labels(status.value).set(counts[status])


async def find_blocked(store: Store) -> list[Credential]:
    """The credentials that send nothing although jobs wait for them."""
    blocked: list[Credential] = []
    after = ""
    while found := await store.credentials.find_still(after=after, limit=_PAGE):
        after = found[-1].id
        blocked += [one for one in found if await store.message_jobs.find_running(one.id, limit=1)]
    return blocked
