"""The progress of a job: its outcomes so far, its rate, and its estimated end."""

from datetime import datetime, timedelta

from msgspec import Struct

from shared.domain.jobs.batches import Receipt
from shared.domain.jobs.totals import Totals

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

    def progress(self, totals: Totals, *, planned: bool, sized: bool = True) -> Progress:
        """The measured progress. `planned`: no more batches will come than in `totals`; `sized`: the recipients of
        unsettled batches are known. Otherwise these are assumed to be like the settled ones."""
        rate = self._recent / max(self._now - self._since, _AT_LEAST).total_seconds()
        like_the_settled = (totals.batches - totals.settled) * totals.done / max(totals.settled, 1)
        left = totals.planned - totals.done if sized else like_the_settled
        if not planned or not rate or left <= 0:
            return Progress(rate=rate)
        return Progress(rate=rate, ends_at=self._now + timedelta(milliseconds=int(left / rate * 1_000)))
