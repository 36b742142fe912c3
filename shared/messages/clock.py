"""The database's clock to the microsecond, for senders by provider accounts (`shared.messages.rules.clocks`)."""

import time
from collections.abc import Callable

from shared.core.instants import ms
from shared.messages.rules.clocks import Bounds, Look, Reading, bound, keep_looks, was_moved
from shared.store import Store

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
