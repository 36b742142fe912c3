"""Cursors: a queue's progress, the outcomes of its events, and its receiver's health.

One transaction changes a cursor with the deliveries and chunks that it counts, and each change raises `v`: a write
based on an older cursor fails. So two workers on one queue cut and settle nothing twice.
"""

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.bus.deliveries import EventDelivery
from shared.domain.bus.health import ReceiverHealth

_OPEN_BESIDE_PROBES = 32
_LATEST = 0.2  # the weight of the latest call in the mean


class Cursor(Struct, frozen=True, kw_only=True):
    """The cursor of the queue `id`. `sequence` is that of the last delivery cut. `open` counts the events in open
    deliveries, `open_deliveries` these deliveries; `sent`, `dead` and `lost` count events. `mean_ms` is the recent
    duration of calls."""

    id: str
    v: int = 0
    sequence: int = 0
    open: int = 0
    open_deliveries: int = 0
    sent: int = 0
    dead: int = 0
    lost: int = 0
    mean_ms: float = 0.0
    health: ReceiverHealth = ReceiverHealth()

    def after_cut(self, deliveries: int, events: int) -> "Cursor":
        return replace(
            self,
            v=self.v + 1,
            sequence=self.sequence + deliveries,
            open=self.open + events,
            open_deliveries=self.open_deliveries + deliveries,
        )

    def after_call(self, ms: int) -> "Cursor":
        mean = ms if self.mean_ms == 0 else self.mean_ms * (1 - _LATEST) + ms * _LATEST
        return replace(self, mean_ms=round(mean, 3))

    def asks_another(self, first_open: EventDelivery) -> bool:
        """Whether the next probe should be a fresh delivery instead of this open one, whose turn it is.

        After all open deliveries have failed since the last success, either they or the receiver may be at fault. So
        every second probe is a fresh one, while few are open.
        """
        since = self.health.failing_since
        if since is None or self.health.failures % 2 or self.open_deliveries >= _OPEN_BESIDE_PROBES:
            return False
        # The last call decides the turn: if this delivery has failed since then, all have.
        return first_open.retry_at is not None and first_open.retry_at >= since
