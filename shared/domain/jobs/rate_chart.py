"""The chart of a job's rate: recipients a second over its time, in at most `POINTS` steps of like length."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import ceil

from msgspec import Struct

POINTS = 120


class SettledAt(Struct, frozen=True):
    """How many recipients a batch was settled with, when it was taken and when it was settled."""

    recipients: int
    taken_at: datetime | None
    at: datetime


class RatePoint(Struct, frozen=True):
    """The recipients a second from `at` on, for as long as the next point is away."""

    at: datetime
    per_second: float


def rate_chart(batches: Iterable[SettledAt]) -> list[RatePoint]:
    """The chart of these batches; steps have whole seconds."""
    settled = list(batches)
    if not settled:
        return []
    first = min(batch.taken_at or batch.at for batch in settled).replace(microsecond=0)
    seconds = (max(batch.at for batch in settled) - first).total_seconds()
    step = max(ceil((seconds + 1) / POINTS), 1)
    sums = [0] * (int(seconds // step) + 1)
    for batch in settled:
        sums[max(int((batch.at - first).total_seconds() // step), 0)] += batch.recipients
    return [
        RatePoint(first + timedelta(seconds=place * step), round(count / step, 3)) for place, count in enumerate(sums)
    ]
