"""Backlogs: uncut events of a queue have limits of age, number and size. Beyond them the oldest whole chunks are lost,
and reported as lost: nothing is dropped in silence."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from msgspec import Struct

from shared.domain.bus.cutting import ChunkHead
from shared.domain.bus.dead_letters import DeathReason
from shared.domain.bus.folding import MOST_APART

_PATIENCE = timedelta(minutes=1)


class BacklogLimits(Struct, frozen=True):
    events: int
    bytes: int


class Backlog(Struct, frozen=True):
    """The events that wait in a queue: their number, the arrival of the first, and their bytes."""

    events: int
    oldest: datetime
    bytes: int = 0

    def is_beyond(self, limits: BacklogLimits, expired: datetime) -> bool:
        """Whether some of it is lost: it is too much, or arrived before `expired`."""
        return self.events > limits.events or self.bytes > limits.bytes or self.oldest + MOST_APART < expired

    def is_overdue(self, timeout: timedelta, now: datetime) -> bool:
        """Whether its first events should be in a delivery: they were due long ago."""
        return self.oldest + timeout + _PATIENCE < now


class Surplus(Struct, frozen=True):
    """The first chunks of a queue, which are lost, and the reason."""

    heads: tuple[ChunkHead, ...]
    reason: DeathReason

    @property
    def events(self) -> int:
        return sum(head.n for head in self.heads)


def choose_surplus(
    heads: Sequence[ChunkHead], backlog: Backlog, limits: BacklogLimits, *, expired: datetime
) -> Surplus | None:
    """The first chunks of a queue that are lost, for one reason and from one source: those that arrived entirely before
    `expired`; otherwise as many as bring the whole backlog within its limits. `None` if there are none."""
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
