"""Fair shares of a bounded resource: a key with much of it gets no more while others may come.

A key may take another unit while it has less than `greed` times the free ones. So no key gets all of it: a single key
gets greed / (greed + 1) of it, n keys get n * greed / (n * greed + 1) of it, each the same. The rest stays free for the
next key. (Switches share their memory in this way: "dynamic thresholds".)
"""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

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
        """Return units of this key; a key without any is dropped."""
        self._taken[key] -= amount
        self._total -= amount
        if not self._taken[key]:
            del self._taken[key]
