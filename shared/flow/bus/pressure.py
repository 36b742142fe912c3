"""The load of the bus: due batches, queued events, and records that no fan-out has read."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from msgspec import Struct

from shared.flow.bus.standing import FRESH_SECONDS, QueueStandings
from shared.runtime.cached import Cached
from shared.store import Store
from shared.stream import Stream


class Pressure(Struct, frozen=True):
    """The load of the bus: `due` batches, `queued` events, the age of the oldest, and `log_lag` records that no fan-out
    has read."""

    due: int
    queued: int
    oldest_seconds: float
    log_lag: int


class BusPressure:
    """Reads the load at most once a second. `now` returns the database's time; `log` is the log's topic."""

    def __init__(
        self,
        store: Store,
        stream: Stream,
        standings: QueueStandings,
        now: Callable[[], Awaitable[datetime]],
        *,
        log: str,
    ) -> None:
        self._store = store
        self._stream = stream
        self._standings = standings
        self._now = now
        self._log = log
        self._pressure = Cached(self._read, seconds=FRESH_SECONDS)

    async def read(self) -> Pressure:
        return await self._pressure.get()

    async def _read(self) -> Pressure:
        due, backlog = await self._standings.count_due_batches(), await self._store.bus_standings.read_all()
        spans = await self._stream.spans(self._log)
        stored = await self._store.bus_flushes.read_positions(list(spans))
        lag = count_lag(spans, {name: reached.position.offset for name, reached in stored.items()})
        if backlog is None:
            return Pressure(due, 0, 0.0, lag)
        waited = (await self._now() - backlog.oldest).total_seconds()
        return Pressure(due, backlog.events, max(waited, 0.0), lag)


def count_lag(spans: Mapping[str, tuple[int, int]], reached: Mapping[str, int]) -> int:
    """The number of records behind these positions; a partition without a position counts in full."""
    return sum(max(end - max(begin, reached.get(name, 0)), 0) for name, (begin, end) in spans.items())
