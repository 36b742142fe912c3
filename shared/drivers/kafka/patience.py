"""Reading a stream while its server may be away for a while."""

import asyncio

from shared.core.errors import Unavailable
from shared.drivers.kafka.reading import Chunk, Reader
from shared.runtime.loops import Backoff, Outage

_BACKOFF = Backoff(first_seconds=0.1, cap_seconds=5)
_FAILURES = 5


async def read_patiently(reader: Reader, wait_seconds: float, *, whose: str, stopping: asyncio.Event) -> list[Chunk]:
    """Read the next chunks, also after failures; returns nothing once `stopping` is set. Raises `Unavailable` after
    `_FAILURES` failures in a row, because the reader seems broken then."""
    outage = Outage(f"{whose} waits to read", stopping, _BACKOFF)
    while not stopping.is_set():
        try:
            return await reader.read(wait_seconds)
        except Unavailable as error:
            if outage.failures + 1 >= _FAILURES:
                raise
            await outage.wait(error)
    return []
