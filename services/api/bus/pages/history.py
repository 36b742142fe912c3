"""A subscription over time, as far as its last deliveries tell: the bus keeps no other history."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from services.api.http.pages.filters import known_time, read_time
from services.api.http.pages.pictures import Piece

DELIVERIES = 100
"""How many deliveries a picture is drawn from."""

SLICES = 60
_STEP = timedelta(seconds=15)
_SHORTEST = timedelta(minutes=1)
_SUCCESSES = range(200, 300)

Deliveries = Sequence[Mapping[str, Any]]


class DeliveryHistory(Struct, frozen=True):
    """From `begins` to now in slices of one length. `calls` has those of each slice that were taken and that failed,
    `waits` how old, in seconds, the oldest event was of these deliveries that waited in it. Of each delivery the first
    and the last calls are known; so many in between are `unknown`."""

    begins: datetime
    calls: Sequence[Sequence[Piece]]
    waits: Sequence[float]
    unknown: int

    @property
    def taken(self) -> int:
        """How many calls were answered well."""
        return int(sum(pieces[0].size for pieces in self.calls))

    @property
    def failed(self) -> int:
        """How many calls failed."""
        return int(sum(pieces[1].size for pieces in self.calls))


def is_success(attempt: Mapping[str, Any]) -> bool:
    """Whether the receiver took what it was called with."""
    return attempt["status"] in _SUCCESSES


def draw_history(deliveries: Deliveries, now: datetime) -> DeliveryHistory | None:
    """What these deliveries tell; `None` where there are none. The picture ends at the next whole step of time: while
    nothing happens, it stays as it is, and a page that asks for itself is told so."""
    if not deliveries:
        return None
    now += -(now - datetime.min.replace(tzinfo=UTC)) % _STEP
    begins = min([known_time(each["cut_at"]) for each in deliveries] + [now - _SHORTEST])
    step = (now - begins) / SLICES
    taken, failed = [0] * SLICES, [0] * SLICES
    for attempt in (attempt for delivery in deliveries for attempt in delivery["attempts"]):
        (taken if is_success(attempt) else failed)[_slice(known_time(attempt["at"]), begins, step)] += 1
    calls = [
        (Piece("taken", good, "good"), Piece("failed", bad, "bad")) for good, bad in zip(taken, failed, strict=True)
    ]
    unknown = sum(each["made"] - len(each["attempts"]) for each in deliveries)
    return DeliveryHistory(begins, calls, _find_oldest(deliveries, begins, step, now), unknown)


def _find_oldest(deliveries: Deliveries, begins: datetime, step: timedelta, now: datetime) -> list[float]:
    """How old the oldest event was in each slice: at its end, or when it was settled in it."""
    oldest = [0.0] * SLICES
    for delivery in deliveries:
        arrived, settled = known_time(delivery["first_at"]), read_time(delivery["settled_at"]) or now
        for index in range(_slice(known_time(delivery["cut_at"]), begins, step), _slice(settled, begins, step) + 1):
            at = min(settled, begins + step * (index + 1))
            oldest[index] = max(oldest[index], (at - arrived).total_seconds())
    return oldest


def _slice(at: datetime, begins: datetime, step: timedelta) -> int:
    return min(max(int((at - begins) / step), 0), SLICES - 1)
