"""Upkeep of the bus: data that is too old, too much or without an owner is removed in steps; small chunks are merged.

removed subscription ──an hour──> its chunks, deliveries and cursor, then itself
settled delivery ──`delivery_days`, or `deliveries_kept` later ones──> removed
dead letter, replay ──`dead_letter_days`──> removed
former choice ──fan-outs have read the log up to its end──> removed
removed topic ──the log has dropped its events──> removed
mail of a notice ──a day──> removed

A queue that holds too many events, or holds them too long, loses its oldest, which are noted as lost. Carillon's
own events are lost too if no fan-out publishes them. As a safety net, upkeep wakes a queue whose events are long
overdue and that no wake-up covers. While a receiver is away, each flush adds a chunk to its queue: compaction
merges them.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

import structlog

from shared.bus.rules.cutting import Backlog, BacklogLimits, ChunkHead, Surplus, choose_surplus
from shared.bus.rules.deliveries import DeathReason
from shared.bus.rules.notices import OLDEST_MAIL
from shared.bus.rules.subscriptions import EventSubscription
from shared.runtime.bus_settings import BusSettings
from shared.runtime.loops import Swept, repeat
from shared.runtime.metrics import BUS_EVENTS_LOST, OTHER, BoundedLabels
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)
_LATE = timedelta(hours=1)
_SOME = _RETENTION_PAGE = 500
_FORMER = 1_000
_LOG_DAYS_MORE = 1  # the log forgets by whole segments
# Enough for thousands of deliveries a second between two rounds, a minute apart; a longer round delays the next one.
_STEPS = 1_000
_TURNS = 250
_QUEUES_AT_ONCE = 20
_BIG = 20  # chunks and deliveries may have a megabyte


class BusRetention:
    """Removes old data of the bus, as much as fits in a round. `settings` gives the ages."""

    def __init__(self, store: Store, time: DatabaseTime, settings: BusSettings) -> None:
        self._store = store
        self._time = time
        self._deliveries_for = timedelta(days=settings.delivery_days)
        self._deliveries_kept = settings.deliveries_kept
        self._log_for = timedelta(days=settings.log_days + _LOG_DAYS_MORE)
        self._letters_for = timedelta(days=settings.dead_letter_days)

    async def run_once(self) -> Swept:
        now, deliveries = await self._time.now(), self._store.bus_deliveries
        settled, died = now - self._deliveries_for, now - self._letters_for
        forget_old = partial(deliveries.forget_settled, settled, _SOME)
        forgotten = await repeat(forget_old, while_full=_SOME, most=_STEPS)
        forgotten += await repeat(lambda: self._store.bus_dead_letters.forget(died, _SOME), while_full=_SOME)
        mailed, notices = now - OLDEST_MAIL - _LATE, self._store.bus_notices
        forgotten += await repeat(lambda: notices.forget_mails(mailed, _SOME), while_full=_SOME)
        replays = self._store.bus_replays
        forgotten += await repeat(lambda: replays.forget(died, _SOME), while_full=_SOME)
        forgotten += await self._forget_surplus()
        for queue in await self._store.bus_gone_queues.find(now - _LATE, _QUEUES_AT_ONCE):
            forgotten += await repeat(partial(self._store.bus_gone_queues.sweep, queue, _BIG), while_full=1)
        forgotten += len(await self._store.bus_subscriptions.forget_removed(now - _LATE, _SOME, now=now))
        forgotten += await self._forget_former() + await self._store.bus_topics.forget_gone(now - self._log_for, _SOME)
        return Swept(discarded=forgotten)

    async def _forget_former(self) -> int:
        """Remove former choices once fan-outs have read all that the log had at their end. An open replay may still
        read them."""
        forgotten, after = 0, ""
        while found := await self._store.bus_subscriptions.find_with_former(_FORMER, after=after):
            forgotten += await self._forget_read(found)
            after = found[-1].id
        return forgotten

    async def _forget_read(self, found: Sequence[EventSubscription]) -> int:
        every = {former.ends.id: former.ends for each in found for former in each.former}
        names = {name for ends in every.values() for name, _ in ends.offsets}
        stored = await self._store.bus_flushes.read_positions(sorted(names))
        positions = {name: at.position for name, at in stored.items()}
        read = [id for id, ends in every.items() if ends.are_read(positions)]
        replayed = await self._store.bus_replays.find_open([each.queue for each in found])
        ids = [each.id for each in found if each.queue not in replayed] if read else []
        return await self._store.bus_subscriptions.forget_former(ids, read, now=await self._time.now()) if ids else 0

    async def _forget_surplus(self) -> int:
        """Remove settled deliveries beyond `deliveries_kept`: some of each queue, then again of queues that have
        more."""
        surplus, forgotten = await self._find_surplus(), 0
        for _ in range(_TURNS):
            counts = [await self._store.bus_deliveries.forget_below(queue, old, _SOME) for queue, old in surplus]
            surplus = [one for one, count in zip(surplus, counts, strict=True) if count == _SOME]
            forgotten += sum(counts)
        return forgotten

    async def _find_surplus(self) -> list[tuple[str, int]]:
        after, found = "", list[tuple[str, int]]()
        while cursors := await self._store.bus_cursors.page_beyond(
            self._deliveries_kept, after=after, limit=_RETENTION_PAGE
        ):
            found += [(cursor.id, cursor.sequence - self._deliveries_kept) for cursor in cursors]
            after = cursors[-1].id
        return found


INTERVAL_SECONDS = 60.0
_QUEUES = 100
_COMPACTION_ROUNDS = 50  # of one queue in one run: the others have their turn


class ChunkUpkeep:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> Swept:
        fewer = 0
        for queue in await self._store.bus_compaction.find_queues(_QUEUES):
            fewer += await self._compact(queue)
        return Swept(claimed=fewer)

    async def _compact(self, queue: str) -> int:
        fewer, after = 0, ""
        for _ in range(_COMPACTION_ROUNDS):
            done, after = await self._store.bus_compaction.compact(queue, after)
            fewer += done
            if not after:
                break
        if fewer:
            log.info("chunks of a queue are compacted", queue=queue, fewer=fewer)
        return fewer


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
                log.error("a queue that no worker would have looked at is woken", queue=queue)
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
