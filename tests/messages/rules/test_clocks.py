"""Reading a clock elsewhere: never ahead, within its bound, and a step is seen."""

from hypothesis import given
from hypothesis import strategies as st

from shared.messages.rules.clocks import LOOKS, MOVED_US, Look, bound, keep_looks, was_moved

SECOND = 1_000_000
TRIPS = st.tuples(st.integers(0, 30_000), st.integers(0, 30_000))


def look(at: int, there: int, back: int, *, ahead: int, clock: str = "a") -> Look:
    """A question at this moment of ours, so long on its way, and its answer, which takes so long to come back."""
    told = at + there + ahead
    return Look(at, at + there + back, told // 1_000 * 1_000, clock)


@given(st.lists(TRIPS, min_size=1, max_size=30), st.integers(-(10**12), 10**12), st.floats(-50e-6, 50e-6))
def test_what_is_read_is_never_ahead_and_within_the_bound(
    trips: list[tuple[int, int]], ahead: int, drift: float
) -> None:
    looks: tuple[Look, ...] = ()
    now = 0
    for number, (there, back) in enumerate(trips):
        at = number * SECOND
        new = look(at, there, back, ahead=ahead + int(at * drift))
        assert not was_moved(looks, new)
        looks = keep_looks(looks, new)
        now = new.answered_us
    assert len(looks) <= LOOKS
    later = now + SECOND // 2
    reading, true = bound(looks).read(later), later + ahead + int(later * drift)
    assert -2 <= true - reading.now_us <= reading.bound_us + 2


def test_one_quick_look_among_slow_ones_is_what_counts() -> None:
    looks: tuple[Look, ...] = ()
    for number in range(LOOKS):
        trip = 100 if number == 4 else 20_000
        looks = keep_looks(looks, look(number * SECOND, trip, trip, ahead=0))
    assert bound(looks).read(LOOKS * SECOND).bound_us < 4_000


def test_another_clock_counts_by_itself() -> None:
    looks = keep_looks((), look(0, 10, 10, ahead=0))
    other = look(SECOND, 10, 10, ahead=90 * SECOND, clock="b")
    assert not was_moved(looks, other)
    assert keep_looks(looks, other) == (other,)


def test_a_clock_that_was_set_is_seen_both_ways() -> None:
    looks = tuple(look(number * SECOND, 500, 500, ahead=0) for number in range(3))
    for step in (-MOVED_US - 3_000, MOVED_US + 3_000):
        assert was_moved(looks, look(4 * SECOND, 500, 500, ahead=step))
    assert not was_moved(looks, look(4 * SECOND, 500, 500, ahead=MOVED_US - 3_000))
