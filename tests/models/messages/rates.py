"""How fast calls of an account may come, whatever its rate was lately.

Calls are due one interval apart, which is longer than 1/rate by its part of the guard. A call may be a little late, and
two clocks may differ a little. So however many calls follow each other, they take as long as their intervals, less
these two. That there are never more than the rate, rounded up, within a second, follows from it; both are checked.
"""

from collections import defaultdict
from math import ceil

from shared.messages.rules.pacing import PaceGuard, interval_us

GUARD = PaceGuard()
_REMEMBERED_SECONDS = 5.0
_REMEMBERED_CALLS = 50
_EXACT = 1e-6
_ACCURACY = (GUARD.late_us + GUARD.clock_us) / 1e6 + _EXACT


class Rates:
    """What each account's rate was when, and when it was called."""

    def __init__(self) -> None:
        self._rates: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self._calls: defaultdict[str, list[float]] = defaultdict(list)

    def note(self, account: str, at: float, rate: float) -> None:
        """The rate holds from now on."""
        known = self._rates[account]
        if not known or known[-1][1] != rate:
            known.append((at, rate))

    def check(self, account: str, at: float) -> str:
        """Take note of a call; what is wrong with it, if it came too fast."""
        rate = self._highest_since(account, at - _REMEMBERED_SECONDS)
        # Below one a second there is one call in each interval.
        span, most = max(1.0, 1 / rate), ceil(rate)
        calls = self._calls[account] = [*self._calls[account], at][-_REMEMBERED_CALLS:]
        within = [each for each in calls if each > at - span + _EXACT]
        if len(within) > most:
            return f"{account} had {within} within {span:.3f} s at {rate}/s"
        recent = [each for each in calls if each >= at - _REMEMBERED_SECONDS]
        interval = interval_us(rate, GUARD) / 1e6
        for behind, each in enumerate(reversed(recent)):
            if at - each < behind * interval - _ACCURACY:
                return f"{account} had {behind + 1} calls from {each:.4f} to {at:.4f} at {rate}/s"
        return ""

    def _highest_since(self, account: str, since: float) -> float:
        """The highest rate of late: what was granted by an older one goes on for a while."""
        known = self._rates[account]
        ended = [end for end, _ in known[1:]] + [float("inf")]
        return max(rate for (_, rate), end in zip(known, ended, strict=True) if end >= since)
