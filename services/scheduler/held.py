"""The claimed occurrences that this process holds until they are due, up to a limit."""

import heapq
import itertools
from datetime import datetime, timedelta

from msgspec import Struct

from shared.domain.clock.occurrences import Occurrence


class Held(Struct, frozen=True):
    """A claimed occurrence, and the time (by the event loop's clock) until which its lease is trusted."""

    occurrence: Occurrence
    trusted_until: float


class Hold:
    """Occurrences by the moment at which they fire; those that may fire early are taken out `early` sooner. `limit`
    bounds `room`."""

    def __init__(self, limit: int, early: timedelta = timedelta()) -> None:
        self._limit = limit
        self._early = early
        self._heap: list[tuple[datetime, int, Held]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def room(self) -> int:
        return max(self._limit - len(self._heap), 0)

    def add(self, held: Held) -> None:
        occurrence = held.occurrence
        fires_at = occurrence.fires_at - (self._early if occurrence.may_be_early else timedelta())
        heapq.heappush(self._heap, (fires_at, next(self._order), held))

    @property
    def next_due(self) -> datetime | None:
        return self._heap[0][0] if self._heap else None

    def due(self, now: datetime, most: int, most_bytes: int) -> list[Held]:
        """Take out at most `most` that are due, the earliest first; at least one, if any is due."""
        taken: list[Held] = []
        left = most_bytes
        while self._heap and self._heap[0][0] <= now and len(taken) < most and left > 0:
            taken.append(heapq.heappop(self._heap)[2])
            left -= taken[-1].occurrence.size
        return taken

    def take_expired(self, now: float) -> list[Held]:
        """Take out, from the first on, those whose leases are no longer trusted at `now`."""
        taken: list[Held] = []
        while self._heap and self._heap[0][2].trusted_until <= now:
            taken.append(heapq.heappop(self._heap)[2])
        return taken

    def take_excess(self) -> list[Held]:
        """Take out the occurrences over the limit: those that fire last."""
        self._heap.sort()  # the sorted list is still a heap
        over = [held for _, _, held in self._heap[self._limit :]]
        del self._heap[self._limit :]
        return over

    def clear(self) -> list[Held]:
        all_ = [held for _, _, held in self._heap]
        self._heap.clear()
        return all_
