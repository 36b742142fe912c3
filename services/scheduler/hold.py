"""The claimed occurrences that a process holds until they are due, up to a limit and fairly between owners."""

import heapq
import itertools
from collections import deque
from datetime import datetime, timedelta

from msgspec import Struct

from shared.clock.rules.occurrences import Occurrence, owner_group


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


_TURN = 20
_CROWDS = 4
_PARTS_IF_CROWDED = 8


class FairHold:
    """A `Hold` per group of owners (a namespace, or a job). Groups with something due take turns, the most overdue one
    first. `limit` is the room for all; `crowds` are the groups that have a quarter of it."""

    def __init__(self, limit: int, early: timedelta = timedelta()) -> None:
        self.crowds: set[str] = set()
        self._limit = limit
        self._crowd = limit // _CROWDS
        self._early = early
        self._holds: dict[str, Hold] = {}
        # The first moment of each hold. An entry whose hold now begins at another moment is skipped.
        self._firsts: list[tuple[datetime, int, str]] = []
        self._order = itertools.count()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def room(self) -> int:
        return max(self._limit - self._count, 0)

    def add(self, held: Held) -> None:
        name = owner_group(held.occurrence.owner)
        hold = self._holds.get(name)
        if hold is None:
            hold = self._holds[name] = Hold(self._limit, self._early)
        first = hold.next_due
        hold.add(held)
        self._count += 1
        if len(hold) == self._crowd:
            self.crowds.add(name)
        if hold.next_due != first:
            self._note_first(name, hold)

    @property
    def is_crowded(self) -> bool:
        """Whether one group is a crowd, and others hold something too."""
        return bool(self.crowds) and len(self._holds) > 1

    @property
    def next_due(self) -> datetime | None:
        while self._firsts and not self._is_first(*self._firsts[0]):
            heapq.heappop(self._firsts)
        return self._firsts[0][0] if self._firsts else None

    def due(self, now: datetime, most: int, most_bytes: int) -> list[Held]:
        """Take out at most `most` that are due, each group's earliest first; at least one, if any is due. A crowded
        hold gives an eighth of `most`, so that what comes due next waits less."""
        if self.is_crowded:
            most = max(most // _PARTS_IF_CROWDED, 1)
        names = self._due_names(now, most)
        taken: list[Held] = []
        left = most_bytes
        turn = deque(names)
        while turn and len(taken) < most and left > 0:
            name = turn.popleft()
            share = self._holds[name].due(now, min(_TURN, most - len(taken)), left)
            if share:
                taken += share
                left -= sum(held.occurrence.size for held in share)
                turn.append(name)
        self._count -= len(taken)
        for name in names:
            if len(self._holds[name]) < self._crowd:
                self.crowds.discard(name)
            self._note_first(name, self._holds[name])
        return taken

    def clear(self) -> list[Held]:
        all_ = [held for hold in self._holds.values() for held in hold.clear()]
        self._holds.clear()
        self._firsts.clear()
        self.crowds.clear()
        self._count = 0
        return all_

    def _due_names(self, now: datetime, most: int) -> list[str]:
        """Take the names of groups with something due out of `_firsts`, the most overdue first."""
        names: dict[str, None] = {}
        while len(names) < most and (first := self.next_due) is not None and first <= now:
            names[heapq.heappop(self._firsts)[2]] = None
        return list(names)

    def _note_first(self, name: str, hold: Hold) -> None:
        if hold.next_due is None:
            del self._holds[name]
        else:
            heapq.heappush(self._firsts, (hold.next_due, next(self._order), name))

    def _is_first(self, moment: datetime, _: int, name: str) -> bool:
        hold = self._holds.get(name)
        return hold is not None and hold.next_due == moment
