"""The database's time, carried on by the monotonic clock between two queries.

Wall clocks differ between machines and jump; the database has one clock. `now` is never ahead of it, because the
reply is taken as the time of its arrival. A slow query says little, so the fastest of a few counts.
"""

import asyncio
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from shared.runtime.metrics import CLOCK_SKEW
from shared.store import Store

_FRESH_SECONDS = 5.0
_GOOD_SECONDS = 0.05
_TRIES = 3


class _Look(Struct, frozen=True):
    database: datetime
    monotonic: float
    took: float


class DatabaseTime:
    """The time of the database. One query serves for some seconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._look: _Look | None = None
        self._lock = asyncio.Lock()

    async def now(self) -> datetime:
        if self._age() >= _FRESH_SECONDS:
            async with self._lock:
                if self._age() >= _FRESH_SECONDS:
                    await self.measure()
        return self.reckon()

    async def measure(self) -> None:
        looks = [await self._measure_once()]
        while looks[-1].took > _GOOD_SECONDS and len(looks) < _TRIES:
            looks.append(await self._measure_once())
        self._look = min(looks, key=lambda look: look.took)
        CLOCK_SKEW.set((datetime.now(UTC) - self.reckon()).total_seconds())

    def reckon(self) -> datetime:
        """Reckon the time from the last query, rounded down to the millisecond."""
        assert self._look is not None, "measure first"
        now = self._look.database + timedelta(seconds=_monotonic() - self._look.monotonic)
        return now.replace(microsecond=now.microsecond // 1000 * 1000)

    def _age(self) -> float:
        return float("inf") if self._look is None else _monotonic() - self._look.monotonic

    async def _measure_once(self) -> _Look:
        asked = _monotonic()
        database = await self._store.now()
        answered = _monotonic()
        return _Look(database, answered, answered - asked)


def _monotonic() -> float:
    return asyncio.get_running_loop().time()
