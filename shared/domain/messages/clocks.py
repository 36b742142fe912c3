"""Reading a clock that is elsewhere, to the millisecond, and knowing how well.

A look asks the database for its time. Its answer holds for some moment between the question and the reply. So each look
bounds by how much that clock is ahead of our own, from below and from above. All looks of the last seconds bound the
same number, and together they bound it closely. A time reckoned from the lower bound is never ahead of the database.

Our own clock is one that never steps. If looks contradict each other, the database's clock was moved.
"""

from collections.abc import Sequence

from msgspec import Struct

LOOKS = 10
"""How many of the last looks count. There is one a second."""

MOVED_US = 5_000
"""A clock that contradicts earlier looks by more than this was moved."""

_RESOLUTION_US = 1_000
_DRIFT = 100e-6


class Look(Struct, frozen=True):
    """One question, by our own clock, and its answer: `told_us` is whole milliseconds, of the clock of this name."""

    asked_us: int
    answered_us: int
    told_us: int
    clock: str

    def ahead_at(self, now_us: int) -> tuple[float, float]:
        """By how much that clock is ahead of ours at least, and at most, so long after the look."""
        drift = max(now_us - self.asked_us, 0) * _DRIFT
        return self.told_us - self.answered_us - drift, self.told_us + _RESOLUTION_US - self.asked_us + drift


class Reading(Struct, frozen=True):
    """The time of a clock: `now_us` is behind it by `bound_us` at most, and never ahead of it."""

    now_us: int
    bound_us: int
    clock: str


class Bounds(Struct, frozen=True):
    """By how much that clock is ahead of ours at `at_us`, at least and at most. Later less is known."""

    at_us: int
    least: float
    most: float
    clock: str

    def read(self, now_us: int) -> Reading:
        """The time at this moment of our own clock."""
        drift = max(now_us - self.at_us, 0) * _DRIFT
        least, most = self.least - drift, self.most + drift
        return Reading(now_us + int(least), max(int(most - least), 0), self.clock)


def bound(looks: Sequence[Look]) -> Bounds:
    """The bounds that looks at one clock give together, if they do not contradict each other."""
    last = looks[-1]
    bounds = [look.ahead_at(last.answered_us) for look in looks]
    least, most = max(lower for lower, _ in bounds), min(upper for _, upper in bounds)
    return Bounds(last.answered_us, least, most, last.clock)


def keep_looks(looks: Sequence[Look], look: Look) -> tuple[Look, ...]:
    """The looks that count with this one: the last few of the same clock; this one alone where it is another clock."""
    return (*looks[-(LOOKS - 1) :], look) if looks and looks[-1].clock == look.clock else (look,)


def was_moved(looks: Sequence[Look], look: Look) -> bool:
    """Whether this look contradicts those before it: the same clock was set back or forth meanwhile."""
    if not looks or looks[-1].clock != look.clock:
        return False
    lower, upper = look.ahead_at(look.answered_us)
    bounds = [earlier.ahead_at(look.answered_us) for earlier in looks]
    return any(lower > highest + MOVED_US or upper < lowest - MOVED_US for lowest, highest in bounds)
