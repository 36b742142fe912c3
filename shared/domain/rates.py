"""Rate limits: the generic cell rate algorithm (GCRA), with a number for each key.

The number is the moment at which all admitted events would have come, one by one at the steady rate. It may be ahead of
the clock by a burst; a key that would move it further has to wait. If there are too many keys, the longest unused ones
are dropped, because a key whose moment has passed is like a new one.
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
        return len(self._moments)

    def wait(self, key: str, now: float) -> float:
        """Count an event of this key, and return 0; or count nothing, and return the seconds until the next try. `now`
        is in seconds and never goes back."""
        moment = max(self._moments.get(key, now), now)
        if (wait := moment - now - self._ahead) > 0:
            return wait
        self._moments[key] = moment + self._interval
        return 0.0
