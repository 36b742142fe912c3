"""The limit of a job's recipients: a job with too many is stopped while it is planned."""

from collections.abc import Sequence

from services.worker.jobs.cutting import PlannedBatch
from shared.domain.audience.named_columns import NamedColumns
from shared.domain.jobs.jobs import Job
from shared.store import Store


class RecipientLimit:
    """Counts the recipients of a plan that has `planned` already."""

    def __init__(self, named: NamedColumns | None, planned: int) -> None:
        self._named = named
        self._planned = planned

    def add(self, page: Sequence[PlannedBatch]) -> None:
        """Count one more page. Raises `Invalid` if there are too many now."""
        self._planned += sum(batch.size for batch in page)
        if self._named is not None:
            self._named.check(self._planned)


async def count_planned(store: Store, job: Job) -> int:
    """The recipients that the job's plan has now."""
    totals = await store.batch_sums.totals([job.key])
    return totals[job.key].planned if job.key in totals else 0
