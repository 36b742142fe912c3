"""Dead letters: events that nobody has taken, until somebody retries or discards them.

Most are a delivery, which a retry opens again: it has the same id and the same events, and its age counts from then
on. One that tells what a backlog has lost has no events: a retry replays them, while the log has them.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from shared.domain.bus.cursors import Cursor
from shared.domain.bus.deliveries import DeliveryAttempt, EventDelivery, digest_events

MOST_OPEN = 1_000
"""How many deliveries of a queue a retry leaves open: workers look at all of them."""


class DeathReason(StrEnum):
    """Why events became a dead letter, or were lost."""

    ATTEMPTS = "attempts"  # it failed too often while others succeeded
    AGE = "age"  # nobody has taken it for too long
    BACKLOG = "backlog"  # more waited than may


class BusDeadLetter(Struct, frozen=True, kw_only=True):
    """Events that nobody has taken. Its id is that of their delivery. `events` are as their receiver would have got
    them, `offsets` where they stand in the log.

    One that tells what a backlog has lost has no `sequence` and no events: its `offsets` are where each partition's
    first and last stand, of what arrived from `first_at` to `last_at`, and `logs` the ids of the logs that they lie in.
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
        """Whether it tells of events that are in no delivery: where the log may still have them, but not which."""
        return self.sequence == 0

    @property
    def can_be_retried(self) -> bool:
        """Whether it is a delivery, or tells in which log its events lie."""
        return not self.is_loss or bool(self.logs)

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        """From which offset to before which its events lie in each partition."""
        spans: dict[str, tuple[int, int]] = {}
        for partition, offset in self.offsets:
            first, end = spans.get(partition, (offset, offset + 1))
            spans[partition] = min(first, offset), max(end, offset + 1)
        return spans


class BusLetterPlace(Struct, frozen=True, array_like=True):
    """The place of a letter in a list, the newest first."""

    died_at: Annotated[datetime, Meta(tz=True)]
    id: str


def place_of_letter(letter: BusDeadLetter) -> BusLetterPlace:
    """The place of this letter in the list."""
    return BusLetterPlace(letter.died_at, letter.id)


def reopen(cursor: Cursor, letter: BusDeadLetter, now: datetime) -> tuple[Cursor, EventDelivery]:
    """Open the delivery of a dead letter again. Its age counts from now on, and its failures from none."""
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
