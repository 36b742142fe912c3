"""The database's time, carried on by the monotonic clock between two queries.

Wall clocks differ between machines and jump; the database has one clock. `now` is never ahead of it, because the
reply is taken as the time of its arrival. A slow query says little, so the fastest of a few counts.

`AccountClock` reads it to the microsecond, for senders by provider accounts (`shared.messages.rules.clocks`).
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from shared.core.instants import ms
from shared.messages.rules.clocks import Bounds, Look, Reading, bound, keep_looks, was_moved
from shared.runtime.metrics import CLOCK_SKEW
from shared.store import Store

_GOOD_SECONDS = 0.05
_TRIES = 3


class _Look(Struct, frozen=True):
    database: datetime
    monotonic: float
    took: float


class DatabaseTime:
    """The time of the database. One query serves for `fresh_seconds`."""

    def __init__(self, store: Store, *, fresh_seconds: float = 5.0) -> None:
        self._store = store
        self._fresh = fresh_seconds
        self._look: _Look | None = None
        self._lock = asyncio.Lock()

    async def now(self) -> datetime:
        if self._age() >= self._fresh:
            async with self._lock:
                if self._age() >= self._fresh:
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


LOOK_SECONDS = 1.0


class AccountClock:
    """Reads the database's clock; `look` has to run once a second. `generation` grows when another clock counts or the
    clock was moved: earlier grants are void then."""

    def __init__(self, store: Store, *, monotonic: Callable[[], float] | None = None) -> None:
        self._store = store
        self._monotonic = monotonic
        self._looks: tuple[Look, ...] = ()
        self._bounds: Bounds | None = None
        self.generation = 0

    async def look(self) -> None:
        asked = self._now_us()
        told, clock = await self._store.read_clock()
        look = Look(asked, self._now_us(), ms(told) * 1_000, clock)
        if was_moved(self._looks, look):
            self._looks = ()
        kept = keep_looks(self._looks, look)
        if kept == (look,):
            self.generation += 1
        self._looks, self._bounds = kept, bound(kept)

    def read(self) -> Reading:
        assert self._bounds is not None
        return self._bounds.read(self._now_us())

    def now_us(self) -> int:
        """The time now in microseconds since 1970."""
        return self.read().now_us

    def _now_us(self) -> int:
        # Not the event loop's time: it stops while the loop is busy, and late calls would seem in time.
        now = time.monotonic() if self._monotonic is None else self._monotonic()
        return int(now * 1_000_000)
