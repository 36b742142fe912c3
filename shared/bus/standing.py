"""Figures of the bus for people and monitors: each queue, its load, and gauges of the whole."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from shared.bus.rules.cutting import Backlog
from shared.bus.rules.deliveries import Cursor
from shared.bus.rules.health import ReceiverHealth
from shared.bus.rules.replays import REPLAYS_OVER, ReplayState
from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.rules.wake_ups import FAR_AHEAD, WakeStage
from shared.drivers.kafka import Stream
from shared.runtime.cached import Cached, Coalescer
from shared.runtime.metrics import (
    BUS_HEALTH_POINTS,
    BUS_NOTICE_AGE,
    BUS_OLDEST,
    BUS_QUEUED_DELIVERIES,
    BUS_QUEUED_EVENTS,
    BUS_REPLAYS,
    BUS_WAKE_UPS,
    MOST_LABELS,
)
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
        found = await self._store.bus_cursors.read(queues) if queues else {}
        return {id: since for id, cursor in found.items() if (since := cursor.health.failing_since) is not None}

    async def count_due_batches(self) -> int:
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


class Pressure(Struct, frozen=True):
    """The load of the bus: `due` batches, `queued` events, the age of the oldest, and `log_lag` records that no fan-out
    has read."""

    due: int
    queued: int
    oldest_seconds: float
    log_lag: int


class BusPressure:
    """Reads the load at most once a second. `now` returns the database's time; `log` is the log's topic."""

    def __init__(
        self,
        store: Store,
        stream: Stream,
        standings: QueueStandings,
        now: Callable[[], Awaitable[datetime]],
        *,
        log: str,
    ) -> None:
        self._store = store
        self._stream = stream
        self._standings = standings
        self._now = now
        self._log = log
        self._pressure = Cached(self._read, seconds=FRESH_SECONDS)

    async def read(self) -> Pressure:
        return await self._pressure.get()

    async def _read(self) -> Pressure:
        due, backlog = await self._standings.count_due_batches(), await self._store.bus_standings.read_all()
        spans = await self._stream.spans(self._log)
        stored = await self._store.bus_flushes.read_positions(list(spans))
        lag = count_lag(spans, {name: reached.position.offset for name, reached in stored.items()})
        if backlog is None:
            return Pressure(due, 0, 0.0, lag)
        waited = (await self._now() - backlog.oldest).total_seconds()
        return Pressure(due, backlog.events, max(waited, 0.0), lag)


def count_lag(spans: Mapping[str, tuple[int, int]], reached: Mapping[str, int]) -> int:
    """The number of records behind these positions; a partition without a position counts in full."""
    return sum(max(end - max(begin, reached.get(name, 0)), 0) for name, (begin, end) in spans.items())


INTERVAL_SECONDS = 60.0
_GAUGES = (BUS_HEALTH_POINTS, BUS_OLDEST, BUS_QUEUED_DELIVERIES, BUS_QUEUED_EVENTS, BUS_REPLAYS, BUS_WAKE_UPS)


class QueueGauges:
    """Counts for `/metrics` of schedulers: all wake-ups, all open replays, and the queues of the first thousand
    subscriptions. `now` returns the database's time."""

    def __init__(self, store: Store, standings: QueueStandings, now: Callable[[], Awaitable[datetime]]) -> None:
        self._store = store
        self._standings = standings
        self._now = now

    async def read_once(self) -> None:
        """Count once. If the store is away, the gauges are empty rather than old."""
        try:
            stages = await self._store.bus_wake_ups.count_stages()
            replays = await self._store.bus_replays.count_open()
            notice, event = await self._store.bus_notices.find_oldest(), await self._store.outbox.find_oldest()
            standings, now = await self._read(), await self._now()
        finally:
            for gauge in _GAUGES:
                gauge.clear()
        for stage in WakeStage:
            BUS_WAKE_UPS.labels(stage.value).set(stages.get(stage.value, 0))
        for state in sorted(set(ReplayState) - REPLAYS_OVER):
            BUS_REPLAYS.labels(state.value).set(replays.get(state, 0))
        waiting = [at for at in (None if notice is None else notice.at, event) if at is not None]
        BUS_NOTICE_AGE.set(max((now - min(waiting, default=now)).total_seconds(), 0.0))
        for subscription_id, standing in standings.items():
            _show(subscription_id, standing, now)

    async def _read(self) -> Mapping[str, QueueStanding]:
        subscriptions = await self._store.bus_subscriptions.page(limit=MOST_LABELS)
        standings = await self._standings.read([subscription.queue for subscription in subscriptions])
        return {subscription.id: standings[subscription.queue] for subscription in subscriptions}


def _show(subscription_id: str, standing: QueueStanding, now: datetime) -> None:
    waited = (now - standing.oldest).total_seconds() if standing.oldest is not None else 0.0
    BUS_QUEUED_DELIVERIES.labels(subscription_id).set(standing.open_deliveries)
    BUS_QUEUED_EVENTS.labels(subscription_id).set(standing.queued)
    BUS_OLDEST.labels(subscription_id).set(max(waited, 0.0))
    BUS_HEALTH_POINTS.labels(subscription_id).set(standing.health.points)
