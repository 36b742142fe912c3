"""When a job breaks its circuit: of how many failed batches it is held."""

from msgspec import Struct

# Before its plan is known to the end, a job is only judged by so many batches.
_ENOUGH_SETTLED = 20


class Counts(Struct, frozen=True):
    """How many batches a job has by now: those that are settled among them, and of these the failed ones."""

    planned: int = 0
    settled: int = 0
    failed: int = 0


def breaks(counts: Counts, *, forgiven: int, planned: bool, max_failed_share: float) -> bool:
    """Whether so many batches failed, since the job was last resumed, that it should be held. `planned`: to the end.

    A share of 1 never holds one: nothing would be left to hold.
    """
    failed = counts.failed - forgiven
    judged = planned or counts.settled >= _ENOUGH_SETTLED
    return max_failed_share < 1 and judged and failed > 0 and failed >= max_failed_share * counts.planned
