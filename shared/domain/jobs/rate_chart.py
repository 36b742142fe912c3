"""The chart of a job's rate: recipients a second over its time, in at most `POINTS` equal steps."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from math import ceil

from msgspec import Struct

from shared.domain.instants import EPOCH
from shared.domain.jobs.events import PAUSE, RESUME, SEND, Event, EventState

POINTS = 120
_PIECES = 1_000  # the maximum into which a long batch is divided
_SECOND = timedelta(seconds=1)
_NS = 1_000_000_000

Pauses = tuple[tuple[int, int], ...]
"""The whole seconds since the epoch in which a job was paused: of each pause the first, and the one after its last."""


class SettledAt(Struct, frozen=True):
    recipients: int
    taken_at: datetime | None
    at: datetime


class RatePoint(Struct, frozen=True):
    at: datetime
    per_second: float


class RateSums:
    """The sums behind the chart, second by second: a batch goes in, and comes out again when it changes. Its recipients
    are spread evenly over its time without the `pauses`."""

    def __init__(self, pauses: Pauses = ()) -> None:
        self._pauses = pauses
        self._recipients: Counter[int] = Counter()
        self._taken: Counter[int] = Counter()
        self._settled: Counter[int] = Counter()

    def add(self, batch: SettledAt, sign: int = 1) -> None:
        settled = _second(batch.at)
        taken = settled if batch.taken_at is None else min(_second(batch.taken_at), settled)
        spans = list(_spans(taken, settled + 1, self._pauses)) or [(settled, settled + 1)]
        seconds = sum(end - start for start, end in spans)
        pieces = min(seconds, _PIECES)
        start, end = spans.pop(0)
        before = 0  # seconds in the spans before this one
        for piece in range(pieces):
            while (second := start + seconds * piece // pieces - before) >= end:
                before += end - start
                start, end = spans.pop(0)
            share = batch.recipients * (piece + 1) // pieces - batch.recipients * piece // pieces
            _count(self._recipients, second, sign * share)
        _count(self._taken, taken, sign)
        _count(self._settled, settled, sign)

    def chart(self) -> list[RatePoint]:
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


def rate_chart(batches: Iterable[SettledAt], pauses: Pauses = ()) -> list[RatePoint]:
    sums = RateSums(pauses)
    for batch in batches:
        sums.add(batch)
    return sums.chart()


def pauses_of(events: Iterable[Event]) -> Pauses:
    """The pauses that have ended, by the job's events in their order. A failure of sending may hold a job, too."""
    pauses, since = [], None
    for event in events:
        if event.stage == PAUSE or (event.stage == SEND and event.state is EventState.FAIL):
            since = event.at if since is None else since
        elif event.stage == RESUME and since is not None:
            pauses.append((since // _NS + 1, event.at // _NS))
            since = None
    return tuple(pause for pause in pauses if pause[0] < pause[1])


def _spans(start: int, end: int, pauses: Pauses) -> Iterator[tuple[int, int]]:
    for first, after in pauses:
        if after > start and first < end:
            if first > start:
                yield start, first
            start = after
    if start < end:
        yield start, end


def _second(at: datetime) -> int:
    return (at - EPOCH) // _SECOND


def _count(counter: Counter[int], second: int, number: int) -> None:
    counter[second] += number
    if not counter[second]:
        del counter[second]
