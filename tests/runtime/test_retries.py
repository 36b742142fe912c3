"""Delays grow, are capped and jittered, and honour what the other side asked for."""

from hypothesis import given
from hypothesis import strategies as st

from shared.runtime.loops import Backoff, next_delay

POLICY = Backoff(first_seconds=0.5, factor=2.0, cap_seconds=60.0, jitter=0.5)
RAND = st.floats(0, 1, exclude_max=True)


def test_without_jitter_delays_double_up_to_the_cap() -> None:
    assert [next_delay(POLICY, attempt, 0.0) for attempt in (1, 2, 3, 7, 8, 9)] == [0.5, 1.0, 2.0, 32.0, 60.0, 60.0]


@given(st.integers(1, 10**9), RAND)
def test_every_delay_is_within_its_jitter_and_the_cap(attempt: int, rand: float) -> None:
    longest = next_delay(POLICY, attempt, 0.0)
    assert longest / 2 <= next_delay(POLICY, attempt, rand) <= longest <= POLICY.cap_seconds


@given(st.integers(1, 20), RAND, st.floats(0, 1e6))
def test_retry_after_is_honoured_up_to_the_cap(attempt: int, rand: float, asked: float) -> None:
    assert next_delay(POLICY, attempt, rand, asked) >= min(asked, POLICY.cap_seconds)
    assert next_delay(POLICY, attempt, rand, asked) <= POLICY.cap_seconds
