"""A process takes as many columns of an account's instants as it can use."""

import pytest

from services.worker.messages.instants import InstantCounts, LostInstant, Speed
from shared.domain.messages.blocks import COLUMNS

QUICK_US = 400


def after(*parts: tuple[int, int], interval_us: int = QUICK_US) -> int:
    """The columns after so many used and so many lost instants, a grant each."""
    counts = InstantCounts(Speed())
    for used, lost in parts:
        for _ in range(used):
            counts.use()
        for _ in range(lost):
            counts.lose(LostInstant.LATE)
        counts.begin(used + lost, interval_us)
    return counts.speed.columns


@pytest.mark.parametrize(
    ("parts", "columns"),
    [
        ([(100, 0)], COLUMNS),
        ([(100, 10)], COLUMNS),
        ([(50, 50)], 4),
        ([(70, 30)], 6),
        ([(1, 999)], 1),
        ([(1, 999), (100, 0)], 2),
        ([(50, 50), (100, 10), (100, 0), (100, 0)], 6),
        ([(5, 5)], COLUMNS),
    ],
)
def test_columns_follow_what_was_used(parts: list[tuple[int, int]], columns: int) -> None:
    assert after(*parts) == columns


def test_of_a_slow_account_a_process_takes_all() -> None:
    assert after((50, 50), interval_us=20_000) == COLUMNS


def test_calls_that_nobody_may_begin_say_nothing_of_the_process() -> None:
    counts = InstantCounts(Speed())
    for _ in range(50):
        counts.use()
        counts.lose(LostInstant.NO_PERMIT)
    counts.begin(100, QUICK_US)
    assert counts.speed.columns == COLUMNS
