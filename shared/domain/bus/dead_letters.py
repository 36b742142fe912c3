"""Dead letters: undelivered events, until a user retries or discards them.

Most are a delivery, which a retry opens again with the same id and events; its age restarts. A letter about a lost
backlog has no events: a retry replays them, while the log has them.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from shared.domain.bus.cursors import Cursor
from shared.domain.bus.deliveries import DeliveryAttempt, EventDelivery, digest_events

MOST_OPEN = 1_000
"""The limit of a queue's open deliveries for a retry: workers look at all of them."""


class DeathReason(StrEnum):
    """The reason why events became a dead letter, or were lost."""

    ATTEMPTS = "attempts"  # it failed too often while others succeeded
    AGE = "age"  # it was undelivered for too long
    BACKLOG = "backlog"  # the backlog exceeded its limits


class BusDeadLetter(Struct, frozen=True, kw_only=True):
    """Undelivered events. The id is that of their delivery. `events` are in the receiver's form, `offsets` are their
    places in the log.

    A letter about a lost backlog has no `sequence` and no events: its `offsets` are the first and last places of each
    partition, of arrivals from `first_at` to `last_at`, and `logs` are the ids of their logs.
    """

    id: str
    queue: str
    subscription: str
    namespace: str
    key: str
    reason: DeathReason
    died_at: datetime
    sequence: int
    count: int
    size: int
    first_at: datetime
    last_at: datetime | None = None
    events: tuple[bytes, ...] = ()
    offsets: tuple[tuple[str, int], ...] = ()
    logs: dict[str, str] = {}
    made: int = 0
    attempts: tuple[DeliveryAttempt, ...] = ()

    @property
    def is_loss(self) -> bool:
        return self.sequence == 0

    @property
    def can_be_retried(self) -> bool:
        """Whether it is a delivery, or knows the log of its events."""
        return not self.is_loss or bool(self.logs)

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        """The range of offsets of its events in each partition: first, and end (exclusive)."""
        spans: dict[str, tuple[int, int]] = {}
        for partition, offset in self.offsets:
            first, end = spans.get(partition, (offset, offset + 1))
            spans[partition] = min(first, offset), max(end, offset + 1)
        return spans


class BusLetterPlace(Struct, frozen=True, array_like=True):
    died_at: Annotated[datetime, Meta(tz=True)]
    id: str


def place_of_letter(letter: BusDeadLetter) -> BusLetterPlace:
    return BusLetterPlace(letter.died_at, letter.id)


def reopen(cursor: Cursor, letter: BusDeadLetter, now: datetime) -> tuple[Cursor, EventDelivery]:
    """Open the delivery of a dead letter again. Its age and failures restart."""
    delivery = EventDelivery(
        id=letter.id,
        queue=letter.queue,
        sequence=letter.sequence,
        events=letter.events,
        offsets=letter.offsets,
        count=letter.count,
        size=letter.size,
        digest=digest_events(letter.events),
        first_at=letter.first_at,
        cut_at=now,
        made=letter.made,
        attempts=letter.attempts,
    )
    opened = replace(
        cursor,
        v=cursor.v + 1,
        open=cursor.open + letter.count,
        open_deliveries=cursor.open_deliveries + 1,
        dead=cursor.dead - letter.count,
    )
    return opened, delivery
