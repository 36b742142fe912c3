"""Ids among millions: which have been seen before, and how many are different.

`Repeats` takes about 8 bytes for each id. Each is kept as a 64-bit hash: Python's own, SipHash under a random key of
each process. Two different ids share one with a probability of 2**-64, so among 20 million the odds that any two do
are 1 to 90,000. The writer of a file cannot make ids collide without that key (unless the operator reveals it by
setting PYTHONHASHSEED), and could only take recipients from his own job. Hashes live as long as the process and are
never stored; every process finds the same true repeats. The hashes are in order on *shelves*, pieces of a sorted
sequence that are split when they grow too long, like the leaves of a B-tree. New ones gather on a tray, and go to the
shelves together: one shelf at a time is copied, so that little additional memory is needed.

`Distinct` takes bounded memory: it is exact up to a limit, then a sample. If there are more different hashes than
the limit, half of the hash space is ignored, then half of the rest, and so on (adaptive sampling; Flajolet, 1990).
The rest is an even sample of all things, independent of their repeats.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from shared.audience.rules.columns import Normalize

Hashes = NDArray[np.int64]
Flags = NDArray[np.bool_]
MAX_IDS = 20_000_000
_SHELF = 128 * 1024  # hashes; 1 MiB, which fits into a processor's cache
_TRAY = 256 * 1024  # hashes; a full tray means a copy of all shelves


class Repeats:
    """Remembers the first `limit` different ids that it gets."""

    def __init__(self, limit: int = MAX_IDS) -> None:
        self.is_exhaustive = True
        """Whether every id so far is remembered; if not, some repeats are not found."""
        self._room = limit
        self._shelves: list[Hashes] = [np.empty(0, np.int64)]
        self._tray: Hashes = np.empty(0, np.int64)

    def mark(self, hashes: Hashes) -> Flags:
        """A flag for each hash that repeats a remembered or an earlier one; the others are remembered. The order of all
        hashes decides, not their division into calls."""
        ordered = np.sort(hashes)
        remembered = self._flag_remembered(ordered)
        if not remembered.any() and ordered.size <= self._room and not (ordered[1:] == ordered[:-1]).any():
            self._remember(ordered)
            return np.zeros(hashes.size, np.bool_)
        return self._mark_some(hashes, ordered[remembered])

    def _mark_some(self, hashes: Hashes, remembered: Hashes) -> Flags:
        known = within(remembered, hashes)
        later = later_ones(hashes)
        new = hashes[~known & ~later]
        if new.size > self._room:
            self.is_exhaustive = False
            new = new[: self._room]
            later &= within(np.sort(new), hashes)
        self._remember(np.sort(new))
        return known | later

    def _flag_remembered(self, ordered: Hashes) -> Flags:
        flags = within(self._tray, ordered)
        for shelf, first, last in self._by_shelf(ordered):
            flags[first:last] |= within(self._shelves[shelf], ordered[first:last])
        return flags

    def _by_shelf(self, ordered: Hashes) -> Iterator[tuple[int, int, int]]:
        bounds = ordered.searchsorted([shelf[0] for shelf in self._shelves[1:]]).tolist()
        for shelf, (first, last) in enumerate(zip([0, *bounds], [*bounds, ordered.size], strict=True)):
            if first < last:
                yield shelf, first, last

    def _remember(self, ordered: Hashes) -> None:
        self._room -= ordered.size
        self._tray = _merge(self._tray, ordered)
        if self._tray.size >= _TRAY:
            self._put_away()

    def _put_away(self) -> None:
        # From the last one, so that the places of the others stay; one by one, because all shelves grow alike.
        for shelf, first, last in reversed([*self._by_shelf(self._tray)]):
            self._shelves[shelf : shelf + 1] = _cut(_merge(self._shelves[shelf], self._tray[first:last]))
        self._tray = np.empty(0, np.int64)


def hashes_of(ids: Iterable[bytes], normalize: Normalize | None = None) -> Hashes:
    """A hash of each id, or of its normal form, valid only in this process."""
    return np.fromiter(map(hash, ids if normalize is None else map(normalize, ids)), np.int64)


def later_ones(hashes: Hashes) -> Flags:
    """A flag for each hash that equals an earlier one."""
    order = hashes.argsort(kind="stable")
    flags = np.zeros(hashes.size, np.bool_)
    flags[order[1:]] = hashes[order[1:]] == hashes[order[:-1]]
    return flags


def within(ordered: Hashes, hashes: Hashes) -> Flags:
    """A flag for each hash that is among the ordered ones."""
    if not ordered.size:
        return np.zeros(hashes.size, np.bool_)
    flags: Flags = ordered.take(ordered.searchsorted(hashes), mode="clip") == hashes
    return flags


def _merge(one: Hashes, other: Hashes) -> Hashes:
    merged = np.concatenate((one, other))
    merged.sort(kind="stable")  # two ascending runs, which this only has to merge
    return merged


def _cut(shelf: Hashes) -> list[Hashes]:
    return np.array_split(shelf, -(-shelf.size // _SHELF))


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
