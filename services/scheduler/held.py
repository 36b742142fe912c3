"""What this process has claimed and holds until it is due, bounded."""

import heapq
import itertools
from datetime import datetime

from msgspec import Struct

from shared.domain.occurrences import Occurrence


class Held(Struct, frozen=True):
    """A claimed occurrence, and until when (by the event loop's clock) its lease is trusted."""

    occurrence: Occurrence
    trusted_until: float


class Hold:
    """Occurrences by the moment at which they fire. `limit` bounds how many are let in."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heap: list[tuple[datetime, int, Held]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def room(self) -> int:
        """How many more may be read."""
        return max(self._limit - len(self._heap), 0)

    def add(self, held: Held) -> None:
        """Hold one."""
        heapq.heappush(self._heap, (held.occurrence.fires_at, next(self._order), held))

    @property
    def next_due(self) -> datetime | None:
        """When the first one is due."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: datetime, most: int) -> list[Held]:
        """Take out some of those that are due, the earliest first."""
        taken: list[Held] = []
        while self._heap and self._heap[0][0] <= now and len(taken) < most:
            taken.append(heapq.heappop(self._heap)[2])
        return taken

    def clear(self) -> list[Held]:
        """Take out all."""
        all_ = [held for _, _, held in self._heap]
        self._heap.clear()
        return all_
