"""Rates and shares: the limits of one caller, so that there is room for others.

A rate is the generic cell rate algorithm (GCRA), with a number for each key: the moment at which all admitted
events would have come, one by one at the steady rate. It may be ahead of the clock by a burst; a key that would
move it further has to wait. If there are too many keys, the longest unused ones are dropped, because a key whose
moment has passed is like a new one.

A key may take another unit of a shared resource while it has less than `greed` times the free ones. So no key gets
all of it: a single key gets greed / (greed + 1) of it, n keys get n * greed / (n * greed + 1) of it, each the same.
The rest stays free for the next key. (Switches share their memory in this way: "dynamic thresholds".)
"""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

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


Key = TypeVar("Key", bound=Hashable)


class Shares(Generic[Key]):
    """The part of `capacity` that each key has."""

    def __init__(self, capacity: int, *, greed: float) -> None:
        self.capacity = capacity
        self._greed = greed
        self._taken: Counter[Key] = Counter()
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def admits(self, key: Key) -> bool:
        return self._taken[key] < self._greed * (self.capacity - self._total)

    def take(self, key: Key, amount: int = 1) -> None:
        self._taken[key] += amount
        self._total += amount

    def give_back(self, key: Key, amount: int = 1) -> None:
        self._taken[key] -= amount
        self._total -= amount
        if not self._taken[key]:
            del self._taken[key]
