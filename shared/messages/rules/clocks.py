"""Reading a remote clock to the millisecond, with a known error, and the change of a pace to another clock.

A look asks the database for its time. The answer holds for some moment between question and reply, so each look
bounds the difference of the two clocks from below and above. The looks of the last seconds together bound it
closely. A time from the lower bound is never ahead of the database. The local clock never steps. If looks
contradict each other, the database's clock was moved.

After an election, instants of the old clock mean nothing. The first process that sees the new clock makes all
workers wait until the grants of the old clock are over (`adopt`). A pause that the provider asked for is kept,
because it does not depend on the database's clock.
"""

from collections.abc import Sequence

from msgspec import Struct

from shared.messages.rules.pacing import (
    FARTHEST_US,
    FIRST_IN_LINE_US,
    LONGEST_PAUSE_US,
    SMALLEST_SHARE,
    Pace,
    PaceGuard,
    effective_rate,
    interval_us,
)

LOOKS = 10
"""The number of looks that count. There is one a second."""
MOVED_US = 5_000
"""A clock that contradicts earlier looks by more than this was moved."""
_RESOLUTION_US = 1_000
_DRIFT = 100e-6


class Look(Struct, frozen=True):
    """A question and its reply, by the local clock, and the answer `told_us` in whole milliseconds, of the named
    clock."""

    asked_us: int
    answered_us: int
    told_us: int
    clock: str

    def ahead_at(self, now_us: int) -> tuple[float, float]:
        """The least and the greatest lead of that clock over the local one, at the local time `now_us`."""
        drift = max(now_us - self.asked_us, 0) * _DRIFT
        return self.told_us - self.answered_us - drift, self.told_us + _RESOLUTION_US - self.asked_us + drift


class Reading(Struct, frozen=True):
    """The time of a clock: `now_us` is at most `bound_us` behind it, and never ahead of it."""

    now_us: int
    bound_us: int
    clock: str


class Bounds(Struct, frozen=True):
    """The least and the greatest lead of that clock over the local one at `at_us`. They widen with time."""

    at_us: int
    least: float
    most: float
    clock: str

    def read(self, now_us: int) -> Reading:
        drift = max(now_us - self.at_us, 0) * _DRIFT
        least, most = self.least - drift, self.most + drift
        return Reading(now_us + int(least), max(int(most - least), 0), self.clock)


def bound(looks: Sequence[Look]) -> Bounds:
    """The common bounds of looks at one clock that do not contradict each other."""
    last = looks[-1]
    bounds = [look.ahead_at(last.answered_us) for look in looks]
    least, most = max(lower for lower, _ in bounds), min(upper for _, upper in bounds)
    return Bounds(last.answered_us, least, most, last.clock)


def keep_looks(looks: Sequence[Look], look: Look) -> tuple[Look, ...]:
    """The looks that count, with the new one: the last few of the same clock; only the new one if the clock is
    another."""
    return (*looks[-(LOOKS - 1) :], look) if looks and looks[-1].clock == look.clock else (look,)


def was_moved(looks: Sequence[Look], look: Look) -> bool:
    """Whether the look contradicts the earlier ones: the same clock was moved meanwhile."""
    if not looks or looks[-1].clock != look.clock:
        return False
    lower, upper = look.ahead_at(look.answered_us)
    bounds = [earlier.ahead_at(look.answered_us) for earlier in looks]
    return any(lower > highest + MOVED_US or upper < lowest - MOVED_US for lowest, highest in bounds)


_SECOND = 1_000_000
_CHANGE_OF_CLOCK_US = 5 * _SECOND // 2
_FARTHEST_EVER_US = FARTHEST_US + FIRST_IN_LINE_US + _SECOND
"""A pace has no instants further ahead than this of its own clock's present time."""


def is_of_another_clock(pace: Pace, *, clock: str, rate: float, now_us: int, guard: PaceGuard) -> bool:
    """Whether the pace belongs to another clock than this one, which reads `now_us`. That includes a pace with
    impossible future instants: a clock of this name was ahead, and was corrected unnoticed."""
    if pace.clock != clock:
        return True
    # The process that adopted the clock may have used any share of the rate.
    change_us = max(_CHANGE_OF_CLOCK_US, 2 * interval_us(rate * SMALLEST_SHARE, guard))
    return (
        max(pace.last_us, pace.slowed_us) > now_us + _FARTHEST_EVER_US
        or pace.free_us > now_us + change_us + _FARTHEST_EVER_US
        or pace.hold_until_us > now_us + LONGEST_PAUSE_US + _FARTHEST_EVER_US
    )


def adopt(pace: Pace, *, clock: str, rate: float, now_us: int, guard: PaceGuard) -> Pace:
    """The pace by another clock, which reads `now_us`. The first call waits until all grants of the old clock are over,
    and one more interval; not at all if there were none. A pause of the provider's keeps at most its length, and ends
    at its old instant if that comes first by the new clock."""
    interval = interval_us(effective_rate(pace, rate, now_us), guard)
    pause_us = min(max(pace.hold_until_us - pace.slowed_us, 0), LONGEST_PAUSE_US)
    return Pace(
        seq=pace.seq + 1,
        free_us=now_us + max(_CHANGE_OF_CLOCK_US, 2 * interval) if pace.clock else now_us,
        hold_until_us=min(pace.hold_until_us, now_us + pause_us),
        share=pace.share,
        slowed_us=now_us if pace.strikes else 0,
        strikes=pace.strikes,
        clock=clock,
    )
