"""Figures of queues for people and monitors."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from shared.domain.bus.backlog import Backlog
from shared.domain.bus.cursors import Cursor
from shared.domain.bus.health import ReceiverHealth
from shared.domain.bus.subscriptions import EventSubscription
from shared.domain.bus.wake_ups import FAR_AHEAD
from shared.runtime.cached import Cached
from shared.runtime.coalescer import Coalescer
from shared.store import Store

FRESH_SECONDS = 1.0
_AT_ONCE = 500


class QueueStanding(Struct, frozen=True, kw_only=True):
    """Figures of a queue. All but `health` and `open_deliveries` count events: `sent` were delivered, `dead` are dead
    letters, `lost` got into no delivery, `queued` wait, including those in open deliveries. `oldest` is when the first
    of the waiting ones arrived."""

    sent: int = 0
    dead: int = 0
    lost: int = 0
    queued: int = 0
    open_deliveries: int = 0
    oldest: datetime | None = None
    health: ReceiverHealth = ReceiverHealth()


class ReceiverStanding(Struct, frozen=True):
    """Figures of a queue and its receiver. A paused receiver is not called before `next_probe`."""

    queue: QueueStanding
    next_probe: datetime | None


class QueueStandings:
    """Reads figures of queues. `now` returns the database's time; a batch counts as due if it is due within
    `deadline`."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], Awaitable[datetime]],
        *,
        deadline: timedelta,
    ) -> None:
        self._store = store
        self._now = now
        self._deadline = deadline
        self._stand_together = Coalescer(self._read_each, most=_AT_ONCE)
        self._find_wake_up = Coalescer(store.bus_wake_ups.find_all, most=_AT_ONCE)
        self._due = Cached(self._count_due_batches, seconds=FRESH_SECONDS)

    async def read(self, queues: Sequence[str]) -> Mapping[str, QueueStanding]:
        standings: dict[str, QueueStanding] = {}
        for first in range(0, len(queues), _AT_ONCE):
            standings |= await self._read(queues[first : first + _AT_ONCE])
        return standings

    async def read_receiver(self, subscription: EventSubscription) -> ReceiverStanding:
        """Figures of one queue and its receiver. Concurrent reads share queries: a page asks for each of twenty."""
        queue = subscription.queue
        standing = await self._stand_together(queue)
        wake_up, now = await self._find_wake_up(queue), await self._now()
        probe = None if wake_up is None else wake_up.not_before
        is_planned = subscription.is_called and probe is not None and now < probe < FAR_AHEAD
        return ReceiverStanding(standing, probe if is_planned else None)

    async def find_failing(self, queues: Sequence[str]) -> dict[str, datetime]:
        """The start of the failures of each receiver whose last call failed, by queue."""
        found = await self._store.bus_cursors.read(queues) if queues else {}
        return {id: since for id, cursor in found.items() if (since := cursor.health.failing_since) is not None}

    async def count_due_batches(self) -> int:
        """The number of due batches of all queues, at most a second old."""
        return await self._due.get()

    async def _count_due_batches(self) -> int:
        return await self._store.bus_standings.count_due_batches(await self._now() + self._deadline)

    async def _read_each(self, queues: Sequence[str]) -> list[QueueStanding]:
        found = await self._read(queues)
        return [found[queue] for queue in queues]

    async def _read(self, queues: Sequence[str]) -> dict[str, QueueStanding]:
        # Uncut events are read first, so a batch that is cut in between counts twice rather than not at all.
        uncut = await self._store.bus_standings.read_uncut(queues)
        opened = await self._store.bus_standings.read_open(queues)
        cursors = await self._store.bus_cursors.read(queues)
        return {
            queue: _stand(cursors.get(queue) or Cursor(id=queue), [uncut.get(queue), opened.get(queue)])
            for queue in queues
        }


def _stand(cursor: Cursor, backlogs: Sequence[Backlog | None]) -> QueueStanding:
    waiting = [backlog for backlog in backlogs if backlog is not None]
    return QueueStanding(
        sent=cursor.sent,
        dead=cursor.dead,
        lost=cursor.lost,
        queued=sum(backlog.events for backlog in waiting),
        open_deliveries=cursor.open_deliveries,
        oldest=min((backlog.oldest for backlog in waiting), default=None),
        health=cursor.health,
    )
