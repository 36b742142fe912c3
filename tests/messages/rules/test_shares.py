"""Shares: each job of an account gets what it is to have, within a batch."""

from hypothesis import given
from hypothesis import strategies as st

from shared.messages.rules.places import Share, join


@given(st.lists(st.integers(1, 100), min_size=2, max_size=6), st.integers(20, 1_000))
def test_shares_hold_within_a_batch(shares: list[int], size: int) -> None:
    jobs = [Share(join([]), share) for share in shares]
    given_out = [0] * len(jobs)
    for _ in range(300):
        least = min(range(len(jobs)), key=lambda number: (jobs[number].had, number))
        jobs[least] = jobs[least].after(size)
        given_out[least] += size
        for one, other in ((one, other) for one in range(len(jobs)) for other in range(len(jobs))):
            gap = given_out[one] / shares[one] - given_out[other] / shares[other]
            assert gap <= size / shares[one] + 1e-6


def test_a_new_job_has_nothing_to_catch_up() -> None:
    assert join([Share(50.0, 2), Share(40.0, 1)]) == 40.0
    assert join([]) == 0.0
