"""A process takes as many of a quick account's instants as it can use."""

from collections import deque

import pytest

from services.worker.messages.pace import LostInstant, Speed
from shared.messages.rules.pacing import Pace, PaceGuard, Wait, reserve

pytestmark = pytest.mark.sending

SPELL_US = 500_000
QUICK_US = 400
FIRST = 1_000


def after(*spells: tuple[int, int], why: LostInstant = LostInstant.LATE, interval_us: int = QUICK_US) -> float:
    """The calls a second that a process is thought to make, after spells with so many used and lost instants."""
    speed = Speed()
    for number, (used, lost) in enumerate((*spells, (1, 0))):
        for index in range(used + lost):
            at = (1 + number) * SPELL_US + index * SPELL_US // (used + lost)
            speed.count(None if index < used else why, at, interval_us)
    return speed.most


@pytest.mark.parametrize(
    ("spells", "most"),
    [
        ([], FIRST),
        ([(500, 0)], FIRST * 1.25),
        ([(500, 0), (600, 0)], FIRST * 1.25**2),
        ([(400, 40)], FIRST),
        ([(300, 300)], FIRST),
        ([(300, 300), (300, 300)], 600),
        ([(300, 300), (300, 300), (300, 0)], 750),
        ([(300, 300), (500, 0), (300, 300)], FIRST * 1.25),
        ([(1, 999), (1, 999)], 100),
        ([(5, 5), (5, 5)], FIRST),
        ([(50, 0)] * 10, FIRST),
        ([(1, 999), (1, 999), (61, 0), (61, 0)], 100 * 1.25**2),
        ([(300, 300), (5, 5), (300, 300)], 600),
    ],
)
def test_speed_follows_what_was_used(spells: list[tuple[int, int]], most: float) -> None:
    assert after(*spells) == pytest.approx(most, rel=0.01)


def test_a_slow_account_says_nothing_of_the_process() -> None:
    assert after((300, 300), (300, 300), interval_us=20_000) == FIRST


def test_calls_that_nobody_may_begin_say_nothing_of_the_process() -> None:
    assert after((300, 300), (300, 300), why=LostInstant.NO_PERMIT) >= FIRST


def test_batches_hold_no_instants_beside_each_other() -> None:
    speed = Speed()
    speed.hold(700, 1)
    speed.hold(500, 1)
    assert speed.after_us(1) == 700
    assert speed.after_us(2) == 0


def test_who_has_fallen_to_one_column_gets_more_of_them() -> None:
    """A column has 122 of 1,000 a second; one of its calls in each half second is late."""
    speed, now_us = Speed(), 10**9
    for _ in range(2):
        for index in range(100):
            speed.count(LostInstant.LATE, now_us + index, QUICK_US)
        now_us += SPELL_US
    for _ in range(12):
        for index in range(60):
            speed.count(None if index else LostInstant.LATE, now_us + index * 8_000, QUICK_US)
        now_us += SPELL_US
    assert speed.most > 2 * 123


def test_instants_of_another_clock_hold_nobody_back() -> None:
    speed = Speed()
    speed.hold(10**15, 1)
    speed.hold(500, 2)
    speed.hold(10**15, 1)
    assert speed.after_us(2) == 500


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("rate", [1_000, 2_500, 5_000, 10_000])
def test_a_rate_out_of_reach_makes_no_worker_slower(rate: float, workers: int) -> None:
    """Each makes 700 calls a second. A turn of its loop is 5 ms, and looks at every instant that has passed."""
    step_us, most_a_step, seconds = 5_000, 3.5, 20
    pace, used = Pace(clock="a"), 0
    crew = [(Speed(), deque[int]()) for _ in range(workers)]
    interval_us = int(1_020_000 / rate) + 1
    for now_us in range(10**9, 10**9 + seconds * 1_000_000, step_us):
        for speed, instants in crew:
            while not instants or instants[-1] < now_us + 200_000:
                got = reserve(
                    pace,
                    rate=rate,
                    count=1_000,
                    now_us=now_us,
                    clock="a",
                    ahead_us=80_000,
                    guard=PaceGuard(),
                    most=speed.most,
                    after_us=speed.after_us(0),
                )
                if isinstance(got, Wait):
                    break
                pace, grant = got
                speed.hold(grant.last_us, 0)
                instants.extend(map(grant.instant, range(grant.count)))
            made = 0
            while instants and instants[0] <= now_us:
                is_late = instants[0] < now_us - 8_000 or made >= most_a_step
                instants.popleft()
                speed.count(LostInstant.LATE if is_late else None, now_us, interval_us)
                made += not is_late
            used += made
    reachable = min(rate, 700 * workers)
    assert used / seconds >= 0.8 * reachable
