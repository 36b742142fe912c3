"""Counts the HTTP calls of each namespace that this process has handed to workers and that have not ended.

The count is kept in memory. If it reaches the limit, a query to the store finds which calls have ended, at most four
times a second. A call whose lease is over no longer counts. So the count needs no message from the workers, and is
right again after any of them is killed.

Calls over the limit get turns later on, one after the other, as fast as calls of that namespace have recently ended. So
an occurrence comes back about when there is room for it, and thousands that wait for a silent target cost the clock and
the store little.
"""

import asyncio
from collections.abc import Mapping, Sequence
from math import ceil

from msgspec import Struct, field

from shared.domain.clock.occurrences import Occurrence
from shared.domain.clock.schedules import Schedule
from shared.store import Store

Due = tuple[Occurrence, Schedule]

_LOOK_SECONDS = 0.25
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 60.0
_LEAST_RATE = 0.5


class _Calls(Struct):
    """The calls of one namespace: the end of each call's lease, how many calls end a second, and the last turn
    given. Times are the event loop's."""

    rate: float
    ends: dict[str, float] = field(default_factory=dict)
    looked_at: float = 0.0
    last_turn: float = 0.0

    def look(self, there: set[str], now: float) -> None:
        """Forget calls that have ended or whose lease is over."""
        ended = len(self.ends)
        self.ends = {id: end for id, end in self.ends.items() if end > now and id in there}
        ended -= len(self.ends)
        lasted = max(now - self.looked_at, _LOOK_SECONDS)
        self.rate = max((self.rate + ended / lasted) / 2, _LEAST_RATE)
        self.looked_at = now

    def pause(self, now: float) -> float:
        wanted = self.last_turn + 1 / self.rate - now
        seconds = min(max(wanted, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        self.last_turn = now + seconds
        return float(ceil(seconds))


class InHand:
    """Counts the calls in workers' hands, at most `most` per namespace."""

    def __init__(self, store: Store, *, most: int, lease_seconds: float) -> None:
        self._store = store
        self._most = most
        self._lease_seconds = lease_seconds
        self._calls: dict[str, _Calls] = {}
        self._forget_at = 0.0

    async def split(self, due: Sequence[Due]) -> tuple[list[Due], list[tuple[Due, float]]]:
        """Split these into calls to hand over now, and calls over their namespace's limit with the seconds until their
        turn."""
        by_namespace: dict[str, list[Due]] = {}
        for entry in due:
            by_namespace.setdefault(entry[1].namespace, []).append(entry)
        await self._look({namespace for namespace, calls in by_namespace.items() if len(calls) > self._room(namespace)})
        fitting: list[Due] = []
        over: list[tuple[Due, float]] = []
        now = asyncio.get_running_loop().time()
        for namespace, calls in by_namespace.items():
            room = self._room(namespace)
            fitting += calls[:room]
            over += [(entry, self._calls_of(namespace).pause(now)) for entry in calls[room:]]
        self._forget(now)
        return fitting, over

    def add(self, namespaces: Mapping[str, str]) -> None:
        """Count calls that are handed over, given as the namespace of each id."""
        end = asyncio.get_running_loop().time() + self._lease_seconds
        for id, namespace in namespaces.items():
            self._calls_of(namespace).ends[id] = end

    def _room(self, namespace: str) -> int:
        calls = self._calls.get(namespace)
        return self._most if calls is None else max(self._most - len(calls.ends), 0)

    def _calls_of(self, namespace: str) -> _Calls:
        # Until something is known, assume that all calls end within a second.
        return self._calls.setdefault(namespace, _Calls(rate=self._most))

    async def _look(self, full: set[str]) -> None:
        """Ask which calls of these namespaces have ended, at most every `_LOOK_SECONDS`."""
        now = asyncio.get_running_loop().time()
        asked = [calls for namespace in full if now >= (calls := self._calls_of(namespace)).looked_at + _LOOK_SECONDS]
        if not asked:
            return
        ids = [id for calls in asked for id in calls.ends]
        there = await self._store.occurrences.find_claimed(ids) if ids else set()
        for calls in asked:
            calls.look(there, now)

    def _forget(self, now: float) -> None:
        """Forget namespaces without calls, once a lease: so those of at most two leases are remembered."""
        if now < self._forget_at:
            return
        self._forget_at = now + self._lease_seconds
        idle = [
            namespace
            for namespace, calls in self._calls.items()
            if calls.last_turn < now and all(end <= now for end in calls.ends.values())
        ]
        for namespace in idle:
            del self._calls[namespace]
