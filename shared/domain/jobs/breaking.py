"""When a job breaks its circuit: how many failed batches it takes to hold it."""

from msgspec import Struct

# Before its plan is known to the end, a job is only judged by so many batches.
_ENOUGH_SETTLED = 20


class Counts(Struct, frozen=True):
    """How many batches a job has by now, how many of them are settled, and how many of these failed."""

    planned: int = 0
    settled: int = 0
    failed: int = 0


def breaks(counts: Counts, *, forgiven: int, planned: bool, max_failed_share: float) -> bool:
    """Whether so many batches failed since a job was resumed that it should be held. `planned`: its plan has an end.

    A share of 1 never holds one: nothing would be left to hold.
    """
    failed = counts.failed - forgiven
    judged = planned or counts.settled >= _ENOUGH_SETTLED
    return max_failed_share < 1 and judged and failed > 0 and failed >= max_failed_share * counts.planned
