"""When a job is held."""

import pytest

from shared.jobs.rules.batches import Counts, breaks


def test_nothing_is_counted_at_first() -> None:
    assert Counts() == Counts(0, 0, 0)


@pytest.mark.parametrize(
    ("counts", "forgiven", "planned", "share", "held"),
    [
        (Counts(planned=20, settled=1, failed=1), 0, True, 0.05, True),
        (Counts(planned=21, settled=21, failed=1), 0, True, 0.05, False),
        (Counts(planned=10, settled=10, failed=9), 0, False, 0.05, False),
        (Counts(planned=30, settled=20, failed=2), 0, False, 0.05, True),
        (Counts(planned=30, settled=19, failed=9), 0, False, 0.05, False),
        (Counts(planned=20, settled=20, failed=3), 3, True, 0.05, False),
        (Counts(planned=20, settled=20, failed=4), 3, True, 0.05, True),
        (Counts(planned=5, settled=5), 0, True, 0.0, False),
        (Counts(planned=5, settled=5, failed=1), 0, True, 0.0, True),
        (Counts(planned=5, settled=5, failed=5), 0, True, 1.0, False),
    ],
)
def test_too_many_failed_batches_hold_a_job(
    counts: Counts, forgiven: int, planned: bool, share: float, held: bool
) -> None:
    assert breaks(counts, forgiven=forgiven, planned=planned, max_failed_share=share) is held
