"""Flushing: entries that were read from the log go into the queues, and the queues are woken.

    fold ──> flush (positions, chunks, unwoken, counts) ──> wake ──> remove the unwoken note
     ^────── the registry has changed

If a process dies after the flush, a document in `bus_unwoken` stays, and `UnwokenUpkeep` wakes its queues. So each
queue is woken at least once for what a flush added.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import assert_never

import structlog
from msgspec.structs import replace

from shared.domain.bus.folding import FOLD_LIMITS, BusFold, FoldLimits, LogEntry, fold
from shared.domain.bus.notices import notices_of_gaps
from shared.domain.bus.subscriptions import subscription_of
from shared.domain.bus.wake_ups import Wake
from shared.domain.errors import Unavailable
from shared.domain.instants import ms
from shared.flow.bus.reading import LogPositions
from shared.flow.bus.registry import Registry
from shared.runtime.bounded_labels import BoundedLabels
from shared.runtime.faults import fault
from shared.runtime.loops import Swept
from shared.runtime.metrics import BUS_EVENTS_ADDED, BUS_FLUSHES, BUS_RECORDS_SKIPPED
from shared.runtime.tracing import root
from shared.store import Store
from shared.store.bus.flushes import BusFlush, FlushResult, PositionMove

log = structlog.get_logger(__name__)

_ID_BYTES = 12
_UNWOKEN_AFTER = timedelta(seconds=5)
_WOKEN_AT_ONCE = 20

_OUTCOMES = {
    FlushResult.STORED: "stored",
    FlushResult.OUTDATED: "folded_again",
    FlushResult.OVERTAKEN: "lost",
}

WakeAll = Callable[[Sequence[Wake]], Awaitable[None]]
"""Tells queues what waits in them. After `Unavailable` some may not have been told."""


class LogFlusher:
    """Flushes log entries into queues. `now` returns the database's time."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        wake: WakeAll,
        now: Callable[[], Awaitable[datetime]],
        limits: FoldLimits = FOLD_LIMITS,
    ) -> None:
        self._store = store
        self._registry = registry
        self._wake = wake
        self._now = now
        self._limits = limits
        self._label = BoundedLabels()

    async def learn(self) -> None:
        """Learn which subscriptions collect events. After `UnreadableSubscriptions` it cannot flush."""
        await self._registry.refresh()

    async def flush(self, entries: Sequence[LogEntry], positions: LogPositions) -> int | None:
        """Flush as many of the first entries as fit into one flush, and wake the queues. Returns how many; 0 if only a
        part of the first entry fitted; `None` if another fan-out has moved a partition. After `Unavailable`, the next
        try shows whether the flush was stored; to try again is safe."""
        most = len(entries)
        while True:
            now, version = await self._now(), self._registry.collectors.version
            collectors, begun = self._registry.collectors, positions.begun
            folded = fold(entries[:most], collectors, now=now, limits=self._limits, begun=begun)
            flush = _make_flush(folded, positions, version, now)
            await fault("fanout.before_flush")
            with root("flush", events=folded.taken, pairs=folded.pairs):
                result = await self._store.bus_flushes.flush(flush, positions.session)
            BUS_FLUSHES.labels(_OUTCOMES[result]).inc()
            match result:
                case FlushResult.STORED:
                    await fault("fanout.after_flush")
                    positions.move(flush.reached)
                    self._count(folded)
                    await self._wake_all(flush)
                    return folded.taken
                case FlushResult.OUTDATED:
                    # A smaller fold takes less time, so frequent changes of subscriptions cannot starve the flush.
                    most = max(folded.taken // 2, 1)
                    await self._registry.refresh()
                case FlushResult.OVERTAKEN:
                    return None
                case _:
                    assert_never(result)

    def _count(self, folded: BusFold) -> None:
        BUS_RECORDS_SKIPPED.inc(folded.unreadable)
        for wake in folded.wakes:
            BUS_EVENTS_ADDED.labels(self._label(subscription_of(wake.queue))).inc(wake.events)

    async def _wake_all(self, flush: BusFlush) -> None:
        """A failure here is left to upkeep: the events are stored."""
        if not flush.wakes:
            return
        try:
            await self._wake(flush.wakes)
            await fault("fanout.after_wake")
            await self._store.bus_flushes.forget_unwoken(list(flush.unwoken))
        except Unavailable as error:
            log.warning("queues are left to upkeep to be woken", flush=flush.id, reason=str(error))


class UnwokenUpkeep:
    """Wakes the queues of flushes whose process died, and updates wake-ups whose subscription changed before a process
    died."""

    def __init__(self, store: Store, wake: WakeAll, now: Callable[[], Awaitable[datetime]]) -> None:
        self._store = store
        self._wake = wake
        self._now = now

    async def run_once(self, *, after: timedelta = _UNWOKEN_AFTER) -> Swept:
        """Wake the queues of flushes older than `after`."""
        before, woken = await self._now() - after, 0
        while found := await self._store.bus_flushes.find_unwoken(before, _WOKEN_AT_ONCE):
            await self._wake([wake for unwoken in found for wake in unwoken.wakes])
            for queue in {unwoken.follows for unwoken in found} - {""}:
                await self._store.bus_subscriptions.follow_up(queue)
            await self._store.bus_flushes.forget_unwoken([unwoken.id for unwoken in found])
            woken += len(found)
        return Swept(claimed=woken)


def _make_flush(folded: BusFold, positions: LogPositions, version: int, now: datetime) -> BusFlush:
    readings = {partition: positions[partition] for partition in folded.reached}
    id = secrets.token_hex(_ID_BYTES)
    return BusFlush(
        id=id,
        version=version,
        at=now,
        order=max(ms(now), *(reading.stands.order + 1 for reading in readings.values())),
        moves=[
            PositionMove(partition, reading.stands, replace(reading.begun, offset=folded.reached[partition]), upto)
            for partition, reading in readings.items()
            for upto in [folded.divided[partition].upto if partition in folded.divided else ""]
        ],
        chunks=folded.chunks,
        wakes=folded.wakes,
        counts=folded.counts,
        notices=notices_of_gaps(id, positions.gaps_before(folded.reached), now),
    )
