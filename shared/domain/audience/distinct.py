"""A count of different things among millions, in bounded memory: exact up to a limit, then by a sample.

Things come as hashes of 64 bits. If there are more different ones than the limit, half of the hash space is ignored,
then half of the rest, and so on (adaptive sampling; Flajolet, 1990). The rest is an even sample of all things,
independent of their repeats.
"""

import numpy as np

LIMIT = 1_000_000
"""Above it the count is within about 0.15 % of the truth: one over the root of half the limit."""


class Distinct:
    """A set of hashes that can only be counted. It holds at most `limit` of them, and those being added."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._halvings = 0
        self._kept = np.empty(0, np.uint64)

    def add(self, hashes: bytes) -> None:
        """Add hashes, 8 bytes each."""
        self._kept = np.union1d(self._kept, self._looked_at(np.frombuffer(hashes, np.uint64)))
        while len(self._kept) > self._limit:
            self._halvings += 1
            self._kept = self._looked_at(self._kept)

    @property
    def count(self) -> int:
        return len(self._kept) << self._halvings

    def _looked_at(
        self, hashes: "np.ndarray[tuple[int], np.dtype[np.uint64]]"
    ) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
        ignored = np.uint64((1 << self._halvings) - 1)
        return hashes[hashes & ignored == 0] if self._halvings else hashes
