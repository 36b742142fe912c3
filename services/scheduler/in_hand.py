"""How many HTTP calls of each namespace are in workers' hands, handed over by this process and not ended.

The count is kept in memory. Where it reaches the bound, the store tells which of the calls have ended, which costs a
query, at most four times a second. A call whose lease is over is in nobody's hands. So the count needs no message from
the workers, and it is right again by itself whoever of them is killed.
"""

import asyncio
from collections.abc import Mapping, Sequence

from shared.domain.occurrences import Occurrence
from shared.domain.schedules import Schedule
from shared.store import Store

Due = tuple[Occurrence, Schedule]

_LOOK_SECONDS = 0.25


class InHand:
    """The calls by namespace and id, with the end of each lease by the event loop's clock; `most` for a namespace."""

    def __init__(self, store: Store, *, most: int, lease_seconds: float) -> None:
        self._store = store
        self._most = most
        self._lease_seconds = lease_seconds
        self._ends: dict[str, dict[str, float]] = {}
        self._looked_at = float("-inf")

    async def split(self, due: Sequence[Due]) -> tuple[list[Due], list[Due]]:
        """Those that may be handed over now, and those over the bound of their namespace. Raises `Unavailable`."""
        by_namespace: dict[str, list[Due]] = {}
        for each in due:
            by_namespace.setdefault(each[1].namespace, []).append(each)
        await self._look(by_namespace)
        now, over = [], []
        for namespace, some in by_namespace.items():
            room = self._room(namespace)
            now += some[:room]
            over += some[room:]
        return now, over

    def add(self, namespaces: Mapping[str, str]) -> None:
        """Calls have been handed over: the namespace of each id."""
        end = asyncio.get_running_loop().time() + self._lease_seconds
        for id, namespace in namespaces.items():
            self._ends.setdefault(namespace, {})[id] = end

    def _room(self, namespace: str) -> int:
        return max(self._most - len(self._ends.get(namespace, ())), 0)

    async def _look(self, wanted: Mapping[str, Sequence[Due]]) -> None:
        """Forget what has ended, if some namespace has no room."""
        now = asyncio.get_running_loop().time()
        if now < self._looked_at + _LOOK_SECONDS or all(len(some) <= self._room(each) for each, some in wanted.items()):
            return
        self._looked_at = now
        full = [namespace for namespace, some in wanted.items() if len(some) > self._room(namespace)]
        ids = [id for namespace in full for id in self._ends.get(namespace, ())]
        there = await self._store.occurrences.still_claimed(ids) if ids else set()
        for namespace, ends in list(self._ends.items()):
            kept = {id: end for id, end in ends.items() if end > now and (namespace not in full or id in there)}
            self._ends[namespace] = kept
            if not kept:
                del self._ends[namespace]
