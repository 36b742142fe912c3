"""The chart of a job's rate: recipients a second over its time, in at most `POINTS` equal steps."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from math import ceil

from msgspec import Struct

from shared.domain.instants import EPOCH

POINTS = 120
_PIECES = 1_000  # the maximum into which a long batch is divided
_SECOND = timedelta(seconds=1)


class SettledAt(Struct, frozen=True):
    """The finished recipients of a batch, and the times of the first take and the last outcome."""

    recipients: int
    taken_at: datetime | None
    at: datetime


class RatePoint(Struct, frozen=True):
    """The recipients a second from `at` until the next point."""

    at: datetime
    per_second: float


class RateSums:
    """The sums of the chart, second by second: a batch goes in, and comes out again when it changes. Its recipients are
    spread evenly over its time."""

    def __init__(self) -> None:
        self._recipients: Counter[int] = Counter()
        self._taken: Counter[int] = Counter()
        self._settled: Counter[int] = Counter()

    def add(self, batch: SettledAt, sign: int = 1) -> None:
        """Add a batch, or remove it by the sign of -1."""
        settled = _second(batch.at)
        taken = settled if batch.taken_at is None else min(_second(batch.taken_at), settled)
        seconds = settled - taken + 1
        pieces = min(seconds, _PIECES)
        for piece in range(pieces):
            share = batch.recipients * (piece + 1) // pieces - batch.recipients * piece // pieces
            _count(self._recipients, taken + seconds * piece // pieces, sign * share)
        _count(self._taken, taken, sign)
        _count(self._settled, settled, sign)

    def chart(self) -> list[RatePoint]:
        """The chart of the sums; steps have whole seconds."""
        if not self._settled:
            return []
        first = min(self._taken)
        seconds = max(max(self._settled) - first, 0)
        step = ceil((seconds + 1) / POINTS)
        sums = [0] * (seconds // step + 1)
        for second, recipients in self._recipients.items():
            sums[max((second - first) // step, 0)] += recipients
        return [
            RatePoint(EPOCH + (first + place * step) * _SECOND, round(count / step, 3))
            for place, count in enumerate(sums)
        ]


def rate_chart(batches: Iterable[SettledAt]) -> list[RatePoint]:
    """The chart of these batches."""
    sums = RateSums()
    for batch in batches:
        sums.add(batch)
    return sums.chart()


def _second(at: datetime) -> int:
    return (at - EPOCH) // _SECOND


def _count(counter: Counter[int], second: int, number: int) -> None:
    counter[second] += number
    if not counter[second]:
        del counter[second]
