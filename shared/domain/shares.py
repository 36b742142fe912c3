"""Fair shares of something bounded: whoever has much of it gets no more while others may come.

A key may take another one while it has less than `greed` times what is free. So nobody gets all of it, however few
there are: alone a key gets greed / (greed + 1) of it, n keys get n * greed / (n * greed + 1) of it, each the same. The
rest stays free for whoever comes next. (Switches share their memory like this: "dynamic thresholds".)
"""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Shares(Generic[Key]):
    """How much of `capacity` each key has."""

    def __init__(self, capacity: int, *, greed: float) -> None:
        self.capacity = capacity
        self._greed = greed
        self._taken: Counter[Key] = Counter()
        self._total = 0

    def __len__(self) -> int:
        """How much is taken."""
        return self._total

    def admits(self, key: Key) -> bool:
        """Whether this key may take another one."""
        return self._taken[key] < self._greed * (self.capacity - self._total)

    def take(self, key: Key, amount: int = 1) -> None:
        """This key has so many more."""
        self._taken[key] += amount
        self._total += amount

    def give_back(self, key: Key, amount: int = 1) -> None:
        """This key has so many fewer; keys that have nothing are forgotten."""
        self._taken[key] -= amount
        self._total -= amount
        if not self._taken[key]:
            del self._taken[key]
