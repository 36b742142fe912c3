"""Batches: the unit of sending, of exactly-once and of pause; their totals, and the failures that hold a job.

A batch is a reference, never data: a range that gives the same rows in the same order at each reading. Its life
(`TRANSITIONS`):

    planned <──> queued <──> sending ──> sent | failed
       │           ├───────────────────> failed
       └───────────┴───────────────────> dropped

`sending` means that a lane owns the batch. Only the owner, after a confirmed commit or abort, or recovery, which
fences the owner first, ends that status. Settled statuses are final.

The content of a batch is read when it is sent, and may have grown since it was planned. A batch that is too large
goes out in *parts*: each is a separate take and transaction, whose marker records the progress. Between two parts
the batch is `queued` again. After a failed transaction the next part is smaller.

A job has `SLOTS` chains. Batch n is in slot n mod SLOTS and is fed only after batch n - SLOTS is settled, so a chain
has one batch in flight, and its slot's marker on the ledger is always that of the last sent batch.
"""

from collections import Counter
from datetime import datetime
from enum import StrEnum
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from shared.audience.rules.audiences import ByteRange, Range
from shared.core.documents import final


class Totals(Struct, frozen=True):
    """Sums over a job's batches. Recipients are devices: planned = sent + failed + skipped + held_out + unsettled or
    dropped ones. `unknown` counts users of a file without a device."""

    batches: int = 0
    settled: int = 0
    planned: int = 0
    sent: int = 0
    failed: int = 0
    skipped: int = 0
    held_out: int = 0
    unknown: int = 0

    @property
    def done(self) -> int:
        return self.sent + self.failed + self.skipped + self.held_out


SLOTS = 32
RECEIPT_ENTRIES = 20
RECEIPT_KEY_BYTES = 40
OTHER = "other"


class BatchStatus(StrEnum):
    """The state of a batch."""

    PLANNED = "planned"  # cut, not on the broker
    QUEUED = "queued"  # a message of its turn, or an occurrence after a delay, brings it to a worker
    SENDING = "sending"  # a lane owns it: its outcome is that lane's transaction
    SENT = "sent"  # its records are out; final
    FAILED = "failed"  # too many recipients failed, or it cannot be sent; final
    DROPPED = "dropped"  # its job was stopped or expired first; final


TRANSITIONS: dict[BatchStatus, frozenset[BatchStatus]] = {
    BatchStatus.PLANNED: frozenset({BatchStatus.QUEUED, BatchStatus.DROPPED}),
    BatchStatus.QUEUED: frozenset({BatchStatus.PLANNED, BatchStatus.SENDING, BatchStatus.FAILED, BatchStatus.DROPPED}),
    BatchStatus.SENDING: frozenset({BatchStatus.QUEUED, BatchStatus.SENT, BatchStatus.FAILED}),
    BatchStatus.SENT: frozenset(),
    BatchStatus.FAILED: frozenset(),
    BatchStatus.DROPPED: frozenset(),
}
SETTLED = final(TRANSITIONS)


class Receipt(Struct, frozen=True, omit_defaults=True):
    """The outcomes of recipients. `reasons` counts failed and skipped ones by reason, `locales` counts sent ones.
    `unknown` users of a file have no device, and so are no recipients."""

    sent: int = 0
    failed: int = 0
    skipped: int = 0
    held_out: int = 0
    unknown: int = 0
    reasons: dict[str, int] = {}
    locales: dict[str, int] = {}

    @property
    def recipients(self) -> int:
        return self.sent + self.failed + self.skipped + self.held_out

    def limit_entries(self) -> Self:
        """The same sums with at most `RECEIPT_ENTRIES` reasons and locales each; `other` has the rest."""
        return replace(self, reasons=top(self.reasons), locales=top(self.locales))

    def __add__(self, more: "Receipt") -> "Receipt":
        return Receipt(
            self.sent + more.sent,
            self.failed + more.failed,
            self.skipped + more.skipped,
            self.held_out + more.held_out,
            self.unknown + more.unknown,
            add_counts(self.reasons, more.reasons),
            add_counts(self.locales, more.locales),
        )


class BatchPart(Struct, frozen=True):
    """The state after one transaction of a batch: `number` counts from 1, `receipt` sums up all parts so far, and the
    next part begins at `next`; `None` after the last part.

    The meaning of `next` depends on the batch's range: the `seq_id` after which the rest of a `KeyRange` or a
    `DeviceList` lies, or the number of finished users of a `ByteRange`.
    """

    receipt: Receipt
    number: int = 1
    next: int | None = None


class Batch(Struct, frozen=True, kw_only=True):
    """One page of a job's audience; `job_id` is the job's key.

    `size` counts the rows of the push table at the time of the plan, or the users of a file's lines; after sending, the
    recipients. `whole`: it is all of its job's audience. The process that puts the batch on the broker raises `turn` by
    compare-and-set; a message of another turn is void. `attempts` counts takes, `owner` is the lane that holds it. By
    the database's clock, `taken_at` is the last take and `changed_at` the last move of any kind.

    `parts` are sent, with `receipt` as their sums, and the rest begins at `next`; `holders` are the takes that held
    users out. Since the last part, `fruitless` takes sent nothing. A part's size is halved `halvings` times.
    """

    job_id: str
    ordinal: int
    range: Range
    size: int
    status: BatchStatus = BatchStatus.PLANNED
    turn: int = 0
    attempts: int = 0
    owner: str = ""
    whole: bool = False
    receipt: Receipt = Receipt()
    parts: int = 0
    next: int | None = None
    holders: tuple[str, ...] = ()
    fruitless: int = 0
    halvings: int = 0
    taken_at: datetime | None = None
    changed_at: datetime | None = None

    @property
    def id(self) -> str:
        """Unique, and in the order of the plan within a job."""
        return batch_id(self.job_id, self.ordinal)

    @property
    def take(self) -> str:
        """The take of its lane, different for each part. A batch of one part has that of its lane."""
        return f"{self.owner}/{self.parts}" if self.parts else self.owner

    @property
    def slot(self) -> int:
        return self.ordinal % SLOTS

    @property
    def recipients_left(self) -> int:
        """The recipients that count as failed if they are unknown: the rest of its size or of its lines, at least one
        if the batch has grown."""
        left = self.size - self.receipt.recipients
        if isinstance(self.range, ByteRange) and self.parts:
            return max(left, self.range.users - (self.next or 0))
        return max(left, 1 if self.parts else 0)

    @property
    def settled(self) -> bool:
        return self.status in SETTLED

    @property
    def is_on_its_way(self) -> bool:
        return self.status in {BatchStatus.QUEUED, BatchStatus.SENDING}

    @property
    def has_failed(self) -> bool:
        return is_failure(self.status)


_HALVED_AT_FAILURE = 2
_MOST_HALVINGS = 30
# About a day of tries, without the time in which the job is held.
_HOPELESS = 5_000


def part_limit(batch: Batch, most: int) -> int:
    return max(most >> batch.halvings, 1)


def smaller(batch: Batch) -> int:
    """The halvings after another fruitless take: a server may manage smaller pieces. The first such take halves
    nothing, because perhaps only the process died."""
    return min(batch.halvings + _HALVED_AT_FAILURE, _MOST_HALVINGS) if batch.fruitless else batch.halvings


def larger(batch: Batch, lasted: float, patience: float) -> int:
    """The halvings after a part that took `lasted` of the `patience` seconds: the next part should take at most
    half."""
    doublings = sum(lasted * factor <= patience for factor in (4, 8))
    return max(batch.halvings - doublings, 0)


def is_hopeless(batch: Batch) -> bool:
    return batch.fruitless >= _HOPELESS


def is_unfed(status: BatchStatus) -> bool:
    return status is BatchStatus.PLANNED


def is_failure(status: BatchStatus) -> bool:
    return status is BatchStatus.FAILED


def batch_id(job_id: str, ordinal: int) -> str:
    return f"{job_id}/{ordinal:08d}"


def verdict(receipt: Receipt, *, max_failed_share: float) -> BatchStatus:
    """`sent`, or `failed` if more than `max_failed_share` of the recipients failed; the others are sent all the
    same."""
    if receipt.failed > max_failed_share * receipt.recipients:
        return BatchStatus.FAILED
    return BatchStatus.SENT


def add_counts(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))


def top(counts: dict[str, int]) -> dict[str, int]:
    """At most `RECEIPT_ENTRIES` keys of at most `RECEIPT_KEY_BYTES`, the largest first; `other` has the rest."""
    ranked = [key for key, _ in Counter(counts).most_common() if key != OTHER]
    kept = {key for key in ranked if len(key.encode()) <= RECEIPT_KEY_BYTES}
    kept &= set(ranked[: RECEIPT_ENTRIES - 1])
    folded: Counter[str] = Counter()
    for key, count in counts.items():
        folded[key if key in kept else OTHER] += count
    return dict(folded)


# Before its plan has an end, a job is only judged after this many batches.
_ENOUGH_SETTLED = 20


class Counts(Struct, frozen=True):
    """The present numbers of a job's batches, of settled ones, and of failed ones."""

    planned: int = 0
    settled: int = 0
    failed: int = 0


def breaks(counts: Counts, *, forgiven: int, planned: bool, max_failed_share: float) -> bool:
    """Whether the failed batches since the last resumption should hold the job. `planned`: its plan has an end.

    A share of 1 never holds a job, because nothing would be left to hold.
    """
    failed = counts.failed - forgiven
    judged = planned or counts.settled >= _ENOUGH_SETTLED
    return max_failed_share < 1 and judged and failed > 0 and failed >= max_failed_share * counts.planned
