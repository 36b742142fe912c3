"""Backlogs: what waits in a queue, in no delivery yet, is bounded in age, number and size. The oldest goes first, whole
chunks of it, and is told as lost: nothing is dropped in silence."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from msgspec import Struct

from shared.domain.bus.cutting import ChunkHead
from shared.domain.bus.dead_letters import DeathReason
from shared.domain.bus.folding import MOST_APART

_PATIENCE = timedelta(minutes=1)


class BacklogLimits(Struct, frozen=True):
    """How many events may wait in a queue, and how many bytes they may have."""

    events: int
    bytes: int


class Backlog(Struct, frozen=True):
    """The events that wait in a queue: how many of how many bytes, and when the first of them arrived."""

    events: int
    oldest: datetime
    bytes: int = 0

    def is_beyond(self, limits: BacklogLimits, expired: datetime) -> bool:
        """Whether some of it is lost: it is too much, or arrived before then."""
        return self.events > limits.events or self.bytes > limits.bytes or self.oldest + MOST_APART < expired

    def is_overdue(self, timeout: timedelta, now: datetime) -> bool:
        """Whether its first events should be in a delivery by now: they were due long ago."""
        return self.oldest + timeout + _PATIENCE < now


class Surplus(Struct, frozen=True):
    """Chunks that are lost, the first ones of a queue, and why."""

    heads: tuple[ChunkHead, ...]
    reason: DeathReason

    @property
    def events(self) -> int:
        """How many events they have."""
        return sum(head.n for head in self.heads)


def choose_surplus(
    heads: Sequence[ChunkHead], backlog: Backlog, limits: BacklogLimits, *, expired: datetime
) -> Surplus | None:
    """Which of the first chunks of a queue are lost, for one reason and from one source: those of which all arrived
    before `expired`; else as many as it takes until the whole backlog is within its limits."""
    heads = list(takewhile(lambda head: head.source == heads[0].source, heads))
    old = [head for head in heads if head.first_at + MOST_APART < expired]
    if old:
        return Surplus(tuple(old), DeathReason.AGE)
    events, size, chosen = backlog.events, backlog.bytes, list[ChunkHead]()
    for head in heads:
        if events <= limits.events and size <= limits.bytes:
            break
        chosen.append(head)
        events, size = events - head.n, size - head.bytes
    return Surplus(tuple(chosen), DeathReason.BACKLOG) if chosen else None
