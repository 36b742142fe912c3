"""GCRA: a burst, then the steady rate, and who is forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from shared.core.rates import Rate


def test_a_burst_is_let_in_and_then_the_steady_rate() -> None:
    rate = Rate(10, burst=5)
    assert [rate.wait("a", 0.0) for _ in range(5)] == [0.0] * 5
    wait = rate.wait("a", 0.0)
    assert 0 < wait <= 0.1
    assert rate.wait("b", 0.0) == 0.0
    assert rate.wait("a", wait) == 0.0
    assert rate.wait("a", wait) > 0
    assert [rate.wait("a", 60.0) for _ in range(6)][:5] == [0.0] * 5


@given(st.lists(st.floats(0, 0.3), max_size=300), st.integers(1, 50), st.integers(1, 20))
def test_never_more_than_burst_and_rate_allow(pauses: list[float], per_second: int, burst: int) -> None:
    rate, now, admitted = Rate(per_second, burst=burst), 0.0, 0
    for pause in pauses:
        now += pause
        admitted += rate.wait("a", now) == 0.0
    assert admitted <= burst + now * per_second + 1e-6


@given(st.lists(st.floats(0, 0.3), min_size=1, max_size=100), st.integers(1, 50), st.integers(1, 20))
def test_who_waits_as_long_as_told_is_let_in(pauses: list[float], per_second: int, burst: int) -> None:
    rate, now = Rate(per_second, burst=burst), 0.0
    for pause in pauses:
        now += pause
        if wait := rate.wait("a", now):
            now += wait + 1e-9
            assert rate.wait("a", now) == 0.0


def test_the_longest_unused_key_is_forgotten() -> None:
    """To be refused is a use: whoever goes on asking is not forgotten over it."""
    rate = Rate(1, burst=1, keys=2)
    assert [rate.wait(key, 0.0) for key in "ab"] == [0.0, 0.0]
    assert rate.wait("a", 0.0) > 0
    assert rate.wait("c", 0.0) == 0.0
    assert len(rate) == 2
    assert rate.wait("a", 0.0) > 0
    assert rate.wait("b", 0.0) == 0.0
