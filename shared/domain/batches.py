"""Batches: the unit of sending, of exactly-once and of pause.

A batch is a reference, never data: a range of keys that can be read again and gives the same rows. Its life:

    planned <──> queued <──> sending ──> sent | failed
       └───────────┴──────────────────> dropped

`sending` means that a lane owns the batch. It leaves that status only by the owner after a confirmed commit or abort,
or by recovery, which fences the owner first. Settled statuses are final.

A job has `SLOTS` chains. Batch n stands in slot n mod SLOTS and is fed only when batch n - SLOTS is settled, so that a
chain has one batch in flight and its slot's marker on the ledger is always the last one that went out.
"""

from collections import Counter
from datetime import datetime
from enum import StrEnum
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

SLOTS = 32
RECEIPT_ENTRIES = 20
RECEIPT_KEY_BYTES = 40
OTHER = "other"


class BatchStatus(StrEnum):
    """Where a batch stands."""

    PLANNED = "planned"  # cut, not on the broker
    QUEUED = "queued"  # a message of its turn is on the broker, or was lost there
    SENDING = "sending"  # a lane owns it: its outcome is that lane's transaction
    SENT = "sent"  # its records are out; final
    FAILED = "failed"  # too many recipients failed, or it cannot be sent; final
    DROPPED = "dropped"  # its job was stopped or it expired first; final


TRANSITIONS: dict[BatchStatus, frozenset[BatchStatus]] = {
    BatchStatus.PLANNED: frozenset({BatchStatus.QUEUED, BatchStatus.DROPPED}),
    BatchStatus.QUEUED: frozenset({BatchStatus.PLANNED, BatchStatus.SENDING, BatchStatus.FAILED, BatchStatus.DROPPED}),
    BatchStatus.SENDING: frozenset({BatchStatus.QUEUED, BatchStatus.SENT, BatchStatus.FAILED}),
    BatchStatus.SENT: frozenset(),
    BatchStatus.FAILED: frozenset(),
    BatchStatus.DROPPED: frozenset(),
}

SETTLED = frozenset(status for status, targets in TRANSITIONS.items() if not targets)


class KeyRange(Struct, frozen=True, tag="keys"):
    """The rows of the push table with `after` < seq_id <= `upto` that the job's filters keep."""

    after: int
    upto: int


class ByteRange(Struct, frozen=True, tag="bytes"):
    """The users in the job's file from byte `start` up to `end`, which are `rows` whole records.

    `repeated` has a bit for each row, the highest of the first byte being the first row's: set where the user stood in
    the file before. It is empty where none did.
    """

    start: int
    end: int
    rows: int
    repeated: bytes = b""

    @property
    def repeats(self) -> int:
        """How many rows repeat."""
        return int.from_bytes(self.repeated).bit_count()

    @property
    def users(self) -> int:
        """How many users stand here first."""
        return self.rows - self.repeats


class Receipt(Struct, frozen=True, omit_defaults=True):
    """What became of recipients. `reasons` tells failed and skipped ones apart by why, `locales` counts what was
    sent. `unknown` users of a file have no device here, and so are no recipients."""

    sent: int = 0
    failed: int = 0
    skipped: int = 0
    held_out: int = 0
    unknown: int = 0
    reasons: dict[str, int] = {}
    locales: dict[str, int] = {}

    @property
    def recipients(self) -> int:
        """How many devices the receipt accounts for."""
        return self.sent + self.failed + self.skipped + self.held_out

    def bounded(self) -> Self:
        """The same sums with at most `RECEIPT_ENTRIES` reasons and locales each, the rarest folded into `other`."""
        return replace(self, reasons=top(self.reasons), locales=top(self.locales))

    def __add__(self, more: "Receipt") -> "Receipt":
        return Receipt(
            self.sent + more.sent,
            self.failed + more.failed,
            self.skipped + more.skipped,
            self.held_out + more.held_out,
            self.unknown + more.unknown,
            merged(self.reasons, more.reasons),
            merged(self.locales, more.locales),
        )


class Batch(Struct, frozen=True, kw_only=True):
    """One page of a job's audience.

    `size` counts the rows of the push table when the plan was cut, or the users of a file's lines; once the batch is
    sent, its recipients. `whole` says that it is all of its job's audience. `turn` is raised, by compare-and-set, by
    whoever puts the batch on the broker; a message of another turn is void. `attempts` counts takes, `owner` names the
    lane that holds it. By the database's clock, `taken_at` is the last take and `changed_at` the last move of any kind.
    """

    job_id: str
    ordinal: int
    range: KeyRange | ByteRange
    size: int
    status: BatchStatus = BatchStatus.PLANNED
    turn: int = 0
    attempts: int = 0
    owner: str = ""
    whole: bool = False
    receipt: Receipt = Receipt()
    taken_at: datetime | None = None
    changed_at: datetime | None = None

    @property
    def id(self) -> str:
        """Unique, and in the order of the plan within a job."""
        return batch_id(self.job_id, self.ordinal)

    @property
    def slot(self) -> int:
        """The chain that the batch stands in."""
        return self.ordinal % SLOTS

    @property
    def at_stake(self) -> int:
        """How many recipients count as failed where nobody can tell them: its size; or the users of its lines, where
        nobody has read yet which of them belong to the zone."""
        return self.size or (self.range.users if isinstance(self.range, ByteRange) else 0)

    @property
    def settled(self) -> bool:
        """Whether its status is final."""
        return self.status in SETTLED


def batch_id(job_id: str, ordinal: int) -> str:
    """The key of the plan's entry `ordinal`."""
    return f"{job_id}/{ordinal:08d}"


def verdict(receipt: Receipt, *, max_failed_share: float) -> BatchStatus:
    """`sent`, or `failed` where more than `max_failed_share` of the recipients failed; the rest is out all the same."""
    if receipt.failed > max_failed_share * receipt.recipients:
        return BatchStatus.FAILED
    return BatchStatus.SENT


def merged(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Key by key sums."""
    return dict(Counter(one) + Counter(other))


def top(counts: dict[str, int]) -> dict[str, int]:
    """At most `RECEIPT_ENTRIES` keys of at most `RECEIPT_KEY_BYTES`, the largest first; what is left is `other`."""
    ranked = [key for key, _ in Counter(counts).most_common() if key != OTHER]
    kept = {key for key in ranked if len(key.encode()) <= RECEIPT_KEY_BYTES}
    kept &= set(ranked[: RECEIPT_ENTRIES - 1])
    folded: Counter[str] = Counter()
    for key, count in counts.items():
        folded[key if key in kept else OTHER] += count
    return dict(folded)
