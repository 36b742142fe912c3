"""Figures of credentials, read at most once a second for each, however many callers look."""

from shared.domain.errors import NotFound
from shared.domain.messages.flowing import CredentialStanding, queue_of, standing_at
from shared.runtime.cached import CachedByKey
from shared.store import Store

JOBS_COUNTED = 1_000
"""The most open jobs that are counted, oldest first."""


class CredentialFigures:
    """Reads figures of credentials."""

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
