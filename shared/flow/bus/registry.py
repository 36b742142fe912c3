"""The registry in memory: which subscriptions collect which events. A flush finds out if it is out of date."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from shared.domain.bus.folding import Collectors
from shared.domain.errors import Unavailable
from shared.domain.positions import LogEnds
from shared.runtime.metrics import BUS_UNREADABLE
from shared.store import Store
from shared.store.bus.subscriptions import UnreadableSubscriptions
from shared.stream import Stream

_ID_BYTES = 12

ReadEnds = Callable[[], Awaitable[LogEnds]]
"""Returns the ends of the log now."""


async def read_log_ends(stream: Stream, log_topic: str, seconds: float) -> LogEnds:
    """The ends of the log now, behind all accepted events. Raises `Unavailable` also after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return LogEnds.of(secrets.token_hex(_ID_BYTES), await stream.find_ranges(log_topic))
    except TimeoutError:
        raise Unavailable(f"the log has not answered within {seconds:g} s", server="stream") from None


class Registry:
    """The subscriptions that collect events: at first all are read, then only changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.collectors = Collectors()

    async def refresh(self) -> None:
        """Read what has changed. After `UnreadableSubscriptions` the registry is unchanged."""
        try:
            reading = await self._store.bus_subscriptions.read_since(self.collectors.version)
        except UnreadableSubscriptions as error:
            BUS_UNREADABLE.set(len(error.ids))
            raise
        BUS_UNREADABLE.set(0)
        self.collectors.learn(reading.version, reading.changed, is_whole=reading.whole)
