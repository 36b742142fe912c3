"""The database's time, carried by the monotonic clock between two looks at it.

Wall clocks differ from machine to machine and jump; the database's clock is one. The time that `now` tells is never
ahead of it: the reply is taken to tell the moment at which it arrived. A look that took long tells little, so the best
of a few is kept.
"""

import asyncio
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from shared.runtime.metrics import CLOCK_SKEW
from shared.store import Store

_GOOD_SECONDS = 0.05
_TRIES = 3


class _Look(Struct, frozen=True):
    database: datetime
    monotonic: float
    took: float


class DatabaseTime:
    """The time of the database. `fresh_seconds` is for how long one look serves."""

    def __init__(self, store: Store, *, fresh_seconds: float = 5.0) -> None:
        self._store = store
        self._fresh = fresh_seconds
        self._look: _Look | None = None
        self._lock = asyncio.Lock()

    async def now(self) -> datetime:
        """The time, after a look if the last one is old. Raises `Unavailable`."""
        if self._age() >= self._fresh:
            async with self._lock:
                if self._age() >= self._fresh:
                    await self.measure()
        return self.reckon()

    async def measure(self) -> None:
        """Ask the database what time it is, now. Raises `Unavailable`."""
        looks = [await self._measure_once()]
        while looks[-1].took > _GOOD_SECONDS and len(looks) < _TRIES:
            looks.append(await self._measure_once())
        self._look = min(looks, key=lambda look: look.took)
        CLOCK_SKEW.set((datetime.now(UTC) - self.reckon()).total_seconds())

    def reckon(self) -> datetime:
        """Reckon the time from the last look, rounded down to the millisecond."""
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
