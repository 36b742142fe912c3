"""The progress of a job: its outcomes so far, its rate, its estimated end, and the chart of its rate.

The sums of a job's batches are kept current: the old counts of a changed batch come out, its new ones go in. A
settled batch may change too, if its kind of job continues to count.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from math import ceil

import msgspec
from msgspec import Struct

from shared.core.instants import EPOCH
from shared.jobs.rules.batches import Receipt, Totals
from shared.jobs.rules.events import PAUSE, RESUME, SEND, Event, EventState

WINDOW = timedelta(seconds=30)
_AT_LEAST = timedelta(seconds=1)
_TELLING = timedelta(seconds=3)


class Settled(Struct, frozen=True):
    """The present outcomes of a batch's recipients, and the times of the first take and the last outcome."""

    receipt: Receipt
    taken_at: datetime | None
    changed_at: datetime | None


class Progress(Struct, frozen=True):
    """`rate` is in recipients a second, over the last half minute; `ends_at` is an estimate, `None` without a basis."""

    summed: Receipt = Receipt()
    rate: float = 0.0
    ends_at: datetime | None = None


class Meter:
    """Measures the rate by batches with recent outcomes, one at a time; or by two looks, if the first of them is old
    enough."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._since = now
        self._recent = 0

    def add(self, batch: Settled) -> None:
        if batch.changed_at is not None and batch.changed_at > self._now - WINDOW:
            self._recent += batch.receipt.recipients
            self._since = min(self._since, batch.taken_at or batch.changed_at)

    def compare(self, seen_at: datetime, recipients: int) -> None:
        if self._now - seen_at >= _TELLING:
            self._since, self._recent = seen_at, max(recipients, 0)

    def progress(self, totals: Totals, *, planned: bool) -> Progress:
        """The measured progress. `planned`: no more batches will come than in `totals`."""
        rate = self._recent / max(self._now - self._since, _AT_LEAST).total_seconds()
        left = totals.planned - totals.done
        if not planned or not rate or left <= 0:
            return Progress(rate=rate)
        return Progress(rate=rate, ends_at=self._now + timedelta(milliseconds=int(left / rate * 1_000)))


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


_COUNTS = ("sent", "failed", "skipped", "held_out", "unknown")


class BatchCounts(Struct, frozen=True, array_like=True):
    size: int
    settled: bool
    receipt: Receipt = Receipt()
    taken_at: datetime | None = None
    changed_at: datetime | None = None


class JobSums:
    """The sums of one job. The counts of each batch are packed, because a large job has tens of thousands.

    `last` is the last known batch, -1 for none; `changed_at` is the time of the last change.
    """

    def __init__(self) -> None:
        self.last = -1
        self.changed_at: datetime | None = None
        self._packed: dict[int, bytes] = {}
        self._sums: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._locales: Counter[str] = Counter()
        self._pauses: Pauses = ()
        self._rate = RateSums()
        self._recent: dict[int, Settled] = {}

    def __contains__(self, ordinal: int) -> bool:
        return ordinal in self._packed

    def __len__(self) -> int:
        return len(self._packed)

    @property
    def totals(self) -> Totals:
        return Totals(batches=len(self), **{name: self._sums[name] for name in ("settled", "planned", *_COUNTS)})

    @property
    def by_reason(self) -> Receipt:
        return Receipt(reasons=dict(+self._reasons), locales=dict(+self._locales))

    @property
    def recent(self) -> list[Settled]:
        """The batches with the last outcomes, unless `forget_recent` dropped them."""
        return list(self._recent.values())

    def put(self, ordinal: int, counts: BatchCounts) -> None:
        packed, known = _encoder.encode(counts), self._packed.get(ordinal)
        if packed == known:
            return
        if known is not None:
            self._add(_decoder.decode(known), -1)
        self._packed[ordinal] = packed
        self._add(counts, 1)
        self.last = max(self.last, ordinal)
        self._note_time(ordinal, counts)

    def forget_recent(self, before: datetime) -> None:
        kept = self._recent.items()
        self._recent = {ordinal: each for ordinal, each in kept if each.changed_at and each.changed_at >= before}

    def chart(self, pauses: Pauses = ()) -> list[RatePoint]:
        if pauses != self._pauses:
            self._pauses, self._rate = pauses, RateSums(pauses)
            for packed in self._packed.values():
                self._add_rate(_decoder.decode(packed), 1)
        return self._rate.chart()

    def _add(self, counts: BatchCounts, sign: int) -> None:
        receipt, sums = counts.receipt, self._sums
        sums["planned"] += sign * counts.size
        for name in _COUNTS:
            sums[name] += sign * getattr(receipt, name)
        self._add_rate(counts, sign)
        if not counts.settled:
            return
        sums["settled"] += sign
        for reason, number in receipt.reasons.items():
            self._reasons[reason] += sign * number
        for locale, number in receipt.locales.items():
            self._locales[locale] += sign * number

    def _add_rate(self, counts: BatchCounts, sign: int) -> None:
        if counts.changed_at is not None and (counts.settled or counts.receipt.recipients):
            self._rate.add(SettledAt(counts.receipt.recipients, counts.taken_at, counts.changed_at), sign)

    def _note_time(self, ordinal: int, counts: BatchCounts) -> None:
        self._recent.pop(ordinal, None)
        if counts.changed_at is None:
            return
        self.changed_at = max(self.changed_at or counts.changed_at, counts.changed_at)
        if counts.settled or counts.receipt.recipients:
            self._recent[ordinal] = Settled(counts.receipt, counts.taken_at, counts.changed_at)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BatchCounts)
