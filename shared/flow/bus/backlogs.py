"""Upkeep of backlogs: a queue that holds too many events, or holds them too long, loses its oldest, which are noted as
lost. Carillon's own events are lost too if no fan-out publishes them.

As a safety net, upkeep wakes a queue whose events are long overdue and that no wake-up covers.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from shared.domain.bus.backlog import Backlog, BacklogLimits, Surplus, choose_surplus
from shared.domain.bus.cutting import ChunkHead
from shared.domain.bus.dead_letters import DeathReason
from shared.domain.bus.subscriptions import EventSubscription
from shared.flow.time import DatabaseTime
from shared.runtime.bounded_labels import OTHER, BoundedLabels
from shared.runtime.loops import Swept
from shared.runtime.metrics import BUS_EVENTS_LOST
from shared.store import Store

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 60.0

_PAGE = 500
_ROUNDS = 200  # of one queue in one run: the others have their turn


class BacklogUpkeep:
    """Keeps backlogs within their limits and within each subscription's `max_age_hours`."""

    def __init__(self, store: Store, time: DatabaseTime, limits: BacklogLimits) -> None:
        self._store = store
        self._time = time
        self._limits = limits
        self._label = BoundedLabels()

    async def run_once(self) -> Swept:
        after, lost, roused = "", 0, 0
        while page := await self._store.bus_subscriptions.page(after=after, limit=_PAGE):
            backlogs = await self._store.bus_standings.read_uncut([each.queue for each in page])
            uncut = [(each, backlogs[each.queue]) for each in page if each.queue in backlogs]
            now = await self._time.now()
            roused += await self._rouse(uncut, now)
            for subscription, backlog in uncut:
                if backlog.is_beyond(self._limits, _expiry(subscription, now)):
                    lost += await self._bring_within(subscription, now)
            after = page[-1].id
        lost += await self._bring_outbox_within()
        return Swept(retried=roused, discarded=lost)

    async def _rouse(self, uncut: Sequence[tuple[EventSubscription, Backlog]], now: datetime) -> int:
        """Wake overdue queues that no worker will look at; returns how many."""
        overdue = [each.queue for each, backlog in uncut if each.is_called and backlog.is_overdue(each.timeout, now)]
        asleep, roused = await self._store.bus_wake_ups.find_asleep(overdue), 0
        # A worker that has been at such a queue meanwhile has left nothing in it.
        still = await self._store.bus_standings.read_uncut(sorted(asleep)) if asleep else {}
        for queue, backlog in still.items():
            if await self._store.bus_subscriptions.rouse(queue, backlog.events, now):
                log.error("a queue that nobody would have looked at is woken", queue=queue)
                roused += 1
        return roused

    async def _bring_within(self, subscription: EventSubscription, now: datetime) -> int:
        expired, lost = _expiry(subscription, now), 0

        def choose(heads: Sequence[ChunkHead], backlog: Backlog | None) -> Surplus | None:
            return None if backlog is None else choose_surplus(heads, backlog, self._limits, expired=expired)

        for _ in range(_ROUNDS):
            surplus = await self._store.bus_backlogs.lose(subscription, choose, now)
            if surplus is None:
                break
            BUS_EVENTS_LOST.labels(self._label(subscription.id), surplus.reason.value).inc(surplus.events)
            lost += surplus.events
        if lost:
            log.warning("events are lost", subscription=subscription.id, key=subscription.key, events=lost)
        return lost

    async def _bring_outbox_within(self) -> int:
        """Drop the oldest of Carillon's own events if more wait than one queue may hold."""
        lost = 0
        for _ in range(_ROUNDS):
            gone = await self._store.bus_backlogs.lose_of_outbox(self._limits.events, await self._time.now())
            if not gone:
                break
            BUS_EVENTS_LOST.labels(OTHER, DeathReason.BACKLOG.value).inc(gone)
            lost += gone
        if lost:
            log.error("events of jobs, messages or schedules are lost: no fan-out publishes them", events=lost)
        return lost


def _expiry(subscription: EventSubscription, now: datetime) -> datetime:
    return now - timedelta(hours=subscription.max_age_hours)
