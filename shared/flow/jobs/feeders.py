"""Feeders of kinds of jobs whose batches do not form chains."""

from datetime import timedelta
from typing import Protocol

from shared.domain.jobs.jobs import Job, Standing


class BatchFeeder(Protocol):
    """Publishes a kind's batches in an order of its own."""

    silence: timedelta
    """The owner of a batch counts as gone after this time without a sign."""

    async def feed(self, standing: Standing) -> None:
        """Queue all batches that may be queued now, of this job or of others that wait for the same. After
        `Unavailable` the others stay planned."""

    async def end_owner(self, owner: str) -> None:
        """Release what the owner of a batch still holds after `silence`."""

    async def drain(self, job: Job) -> None:
        """Bring the rest of a stopped job to an end if it cannot be dropped unseen."""

    async def reopen(self, job: Job) -> None:
        """Continue to take the job up again if the process that began it died."""
