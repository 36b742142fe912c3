"""How many recipients a job may have: what has too many is stopped while it is planned."""

from collections.abc import Sequence

from services.worker.jobs.cutting import PlannedBatch
from shared.domain.audience.named_columns import NamedColumns
from shared.domain.jobs.jobs import Job
from shared.store import Store


class RecipientLimit:
    """Counts the recipients of a plan in which there are so many already."""

    def __init__(self, named: NamedColumns | None, planned: int) -> None:
        self._named = named
        self._planned = planned

    def add(self, page: Sequence[PlannedBatch]) -> None:
        """Count one more page. Raises `Invalid` where there are too many by now."""
        self._planned += sum(batch.size for batch in page)
        if self._named is not None:
            self._named.check(self._planned)


async def count_planned(store: Store, job: Job) -> int:
    """How many recipients the job's plan has by now."""
    totals = await store.batch_sums.totals([job.key])
    return totals[job.key].planned if job.key in totals else 0
