"""Queues whose cursor is locked by an open transaction, such as that of a dead process: for up to a minute.

Such a queue is written alone and tried once, until it is free again, because a group with it would wait. Its run gets
`Unavailable` and puts the queue off.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import compress
from typing import TypeVar

import structlog
from cachetools import LRUCache

from shared.domain.errors import Unavailable
from shared.store.bus.moves import PATIENCE, CursorWrites

log = structlog.get_logger(__name__)

_MOST = 10_000

Write = TypeVar("Write")


class LockedQueues:
    """The locked queues that a process has met recently."""

    def __init__(self) -> None:
        self._met: LRUCache[str, bool] = LRUCache(maxsize=_MOST)

    async def write(
        self,
        writes: Sequence[Write],
        queue_of: Callable[[Write], str],
        write_some: Callable[[Sequence[Write], float], Awaitable[CursorWrites]],
    ) -> Sequence[bool | Exception]:
        """Write these by `write_some`, which also takes a patience in seconds. Answers for each whether it was written,
        or `Unavailable` if its queue is locked. If one queue has several writes, only the first is made: two runs have
        met, and one of them has lost the queue."""
        queues = list(map(queue_of, writes))
        firsts = [queues.index(queue) == place for place, queue in enumerate(queues)]
        outcome = await self._write_firsts(list(compress(writes, firsts)), queue_of, write_some)
        self._note(set(queues), outcome.locked)
        return [is_first and _answer(queue, outcome) for queue, is_first in zip(queues, firsts, strict=True)]

    async def _write_firsts(
        self,
        writes: Sequence[Write],
        queue_of: Callable[[Write], str],
        write_some: Callable[[Sequence[Write], float], Awaitable[CursorWrites]],
    ) -> CursorWrites:
        together = [write for write in writes if queue_of(write) not in self._met]
        outcome = await write_some(together, PATIENCE) if together else CursorWrites()
        for write in writes:
            if queue_of(write) in self._met:
                outcome |= await write_some([write], 0)
        return outcome

    def _note(self, queues: set[str], locked: frozenset[str]) -> None:
        for queue in queues - locked:
            self._met.pop(queue, None)
        for queue in locked:
            if queue not in self._met:
                log.warning("another transaction keeps the cursor of a queue", queue=queue)
            self._met[queue] = True


def _answer(queue: str, outcome: CursorWrites) -> bool | Exception:
    if queue in outcome.locked:
        return Unavailable("MongoDB: another transaction keeps the cursor of this queue")
    return queue in outcome.written
