"""Upkeep of queues with many small chunks: while a receiver is away, each flush adds a chunk to its queue."""

import structlog

from shared.runtime.loops import Swept
from shared.store import Store

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 60.0

_QUEUES = 100
_ROUNDS = 50  # of one queue in one run: the others have their turn


class ChunkUpkeep:
    """Compacts queues."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> Swept:
        fewer = 0
        for queue in await self._store.bus_compaction.find_queues(_QUEUES):
            fewer += await self._compact(queue)
        return Swept(claimed=fewer)

    async def _compact(self, queue: str) -> int:
        fewer, after = 0, ""
        for _ in range(_ROUNDS):
            done, after = await self._store.bus_compaction.compact(queue, after)
            fewer += done
            if not after:
                break
        if fewer:
            log.info("chunks of a queue are compacted", queue=queue, fewer=fewer)
        return fewer
