"""Cursors: how far a queue is, what became of its events, and how its receiver stands.

A cursor changes with the deliveries and the chunks that it counts, in one transaction, and each change raises `v`: who
writes what follows from an older one writes nothing. So two who think that they work on one queue cut and settle
nothing twice.
"""

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.bus.deliveries import EventDelivery
from shared.domain.bus.health import ReceiverHealth

_OPEN_BESIDE_PROBES = 32
_LATEST = 0.2  # how much of the mean the latest call makes


class Cursor(Struct, frozen=True, kw_only=True):
    """The cursor of the queue `id`. `sequence` is that of the delivery that was cut last. `open` counts the events in
    open deliveries, and `open_deliveries` these; `sent`, `dead` and `lost` count events. `mean_ms` is how long calls
    took of late."""

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
        """As it is once so many more deliveries with so many events are cut."""
        return replace(
            self,
            v=self.v + 1,
            sequence=self.sequence + deliveries,
            open=self.open + events,
            open_deliveries=self.open_deliveries + deliveries,
        )

    def after_call(self, ms: int) -> "Cursor":
        """As it is after a call that took so long."""
        mean = ms if self.mean_ms == 0 else self.mean_ms * (1 - _LATEST) + ms * _LATEST
        return replace(self, mean_ms=round(mean, 3))

    def asks_another(self, first_open: EventDelivery) -> bool:
        """Whether the next probe is better made by a fresh delivery than by this open one, whose turn it is.

        Once all that are open have failed since the last success, nobody can tell whether these are at fault or the
        receiver is. So every second probe is another one, while few are open.
        """
        since = self.health.failing_since
        if since is None or self.health.failures % 2 or self.open_deliveries >= _OPEN_BESIDE_PROBES:
            return False
        # The turn goes by the time of the last call: if this one has failed since then, all have.
        return first_open.retry_at is not None and first_open.retry_at >= since
