"""How often somebody may do something: the generic cell rate algorithm (GCRA), a number for each key.

The number is the moment at which all that was admitted would have come, one by one at the steady rate. It may run ahead
of the clock by a burst; a key that would bring it further has to wait. Keys are forgotten, the longest unused first,
when there are too many of them: a key whose moment has passed is like one that never came.
"""

from cachetools import LRUCache

_ROUNDING = 1e-9


class Rate:
    """`per_second` for each key in the long run, and up to `burst` at once; at most `keys` are remembered."""

    def __init__(self, per_second: float, *, burst: int, keys: int = 10_000) -> None:
        self._interval = 1 / per_second
        self._ahead = (burst - 1) * self._interval + _ROUNDING
        self._moments: LRUCache[str, float] = LRUCache(keys)

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._moments)

    def wait(self, key: str, now: float) -> float:
        """Count one more of this key, and return 0; or count nothing, and return after how many seconds to try again.
        `now` is in seconds and never goes back."""
        moment = max(self._moments.get(key, now), now)
        if (wait := moment - now - self._ahead) > 0:
            return wait
        self._moments[key] = moment + self._interval
        return 0.0
