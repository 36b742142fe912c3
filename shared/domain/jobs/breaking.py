"""The circuit break: the failed batches that hold a job."""

from msgspec import Struct

# Before its plan has an end, a job is only judged after this many batches.
_ENOUGH_SETTLED = 20


class Counts(Struct, frozen=True):
    """The present numbers of a job's batches, of settled ones, and of failed ones."""

    planned: int = 0
    settled: int = 0
    failed: int = 0


def breaks(counts: Counts, *, forgiven: int, planned: bool, max_failed_share: float) -> bool:
    """Whether the failed batches since the last resumption should hold the job. `planned`: its plan has an end.

    A share of 1 never holds a job, because nothing would be left to hold.
    """
    failed = counts.failed - forgiven
    judged = planned or counts.settled >= _ENOUGH_SETTLED
    return max_failed_share < 1 and judged and failed > 0 and failed >= max_failed_share * counts.planned
