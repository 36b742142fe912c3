"""Kinds of jobs whose batches do not stand in chains: what they do in place of them."""

from datetime import timedelta
from typing import Protocol

from shared.domain.jobs.jobs import Job, Standing


class BatchFeeder(Protocol):
    """Puts a kind's batches on the broker in an order of its own. All raise `Unavailable`."""

    silence: timedelta
    """After how long without a sign the owner of a batch counts as gone."""

    async def feed(self, standing: Standing) -> None:
        """Queue whatever may be queued now, of this job or of others that wait for the same. Batches that were not
        queued when this raised stay planned."""

    async def end_owner(self, owner: str) -> None:
        """End what a batch's owner who shows no more sign may still hold."""

    async def drain(self, job: Job) -> None:
        """Have what is left of a stopped job brought to its end that nobody can drop without a look."""

    async def reopen(self, job: Job) -> None:
        """Go on with taking the job up again, where whoever began that died."""
