"""The sums of a job's batches, kept current: the old counts of a changed batch come out, its new ones go in. A settled
batch may change too, if its kind of job continues to count."""

from collections import Counter
from datetime import datetime

import msgspec
from msgspec import Struct

from shared.domain.jobs.batches import Receipt
from shared.domain.jobs.progress import Settled
from shared.domain.jobs.rate_chart import Pauses, RatePoint, RateSums, SettledAt
from shared.domain.jobs.totals import Totals

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
