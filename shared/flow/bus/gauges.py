"""Gauges of the whole bus: waiting events, health of receivers, wake-ups, age of the oldest notice or event in the
outbox, open replays."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from shared.domain.bus.replays import REPLAYS_OVER, ReplayState
from shared.domain.bus.wake_ups import WakeStage
from shared.flow.bus.standing import QueueStanding, QueueStandings
from shared.runtime.bounded_labels import MOST_LABELS
from shared.runtime.metrics import (
    BUS_HEALTH_POINTS,
    BUS_NOTICE_AGE,
    BUS_OLDEST,
    BUS_QUEUED_DELIVERIES,
    BUS_QUEUED_EVENTS,
    BUS_REPLAYS,
    BUS_WAKE_UPS,
)
from shared.store import Store

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
