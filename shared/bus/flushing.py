"""Flushing: entries that were read from the log go into the queues, and the queues are woken.

    fold ──> flush (positions, chunks, unwoken, counts) ──> wake ──> remove the unwoken note
     ^────── the registry has changed

If a process dies after the flush, a document in `bus_unwoken` stays, and `UnwokenUpkeep` wakes its queues. So each
queue is woken at least once for what a flush added.
"""

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import assert_never

import structlog
from msgspec import Struct
from msgspec.structs import replace

from shared.bus.rules.folding import FOLD_LIMITS, BusFold, DividedEvent, FoldLimits, LogEntry, fold, read_entries
from shared.bus.rules.notices import LogGap, notices_of_gaps
from shared.bus.rules.subscriptions import subscription_of
from shared.bus.rules.wake_ups import Wake
from shared.bus.store_log import BusFlush, FlushResult, LogPosition, PositionMove
from shared.bus.topics import Registry
from shared.core.documents import Position
from shared.core.errors import Unavailable
from shared.core.instants import ms
from shared.drivers.kafka.reading import Chunk
from shared.drivers.mongo.transactions import OwnSession
from shared.runtime.faults import fault
from shared.runtime.loops import Swept
from shared.runtime.metrics import (
    BUS_EVENTS_ADDED,
    BUS_EVENTS_LOST,
    BUS_FLUSHES,
    BUS_RECORDS_SKIPPED,
    OTHER,
    BoundedLabels,
)
from shared.runtime.tracing import root
from shared.store import Store

log = structlog.get_logger(__name__)


class PartitionReading(Struct, frozen=True):
    """The position of a partition: `stands` is stored, `begun` is the same in the log that is read now. `is_new`:
    nothing of this log was read yet, and another log was read before."""

    stands: LogPosition
    begun: Position
    is_new: bool = False

    @classmethod
    def begin(cls, stands: LogPosition, log_id: str) -> "PartitionReading":
        """Begin in this log. Raises `Unavailable` for a log that was replaced by another."""
        begun = stands.position.begin(log_id)
        return cls(stands, begun, is_new=len(begun.left) > len(stands.position.left))


class LogPositions:
    """The positions of one reader and its session. `begins_at_end`: skip the existing records of a log that replaces
    another."""

    def __init__(self, store: Store, *, begins_at_end: bool = False) -> None:
        self._store = store
        self._begins_at_end = begins_at_end
        self._session: OwnSession | None = None
        self._readings: dict[str, PartitionReading] = {}
        self._logs: dict[str, str] = {}
        self._ends: Mapping[str, int] = {}
        self._passed_over: dict[str, int] = {}
        self._gaps: dict[str, LogGap] = {}

    @property
    def session(self) -> OwnSession:
        """The session in which this reader flushes."""
        if self._session is None:
            self._session = self._store.bus_flushes.open_session()
        return self._session

    def __getitem__(self, partition: str) -> PartitionReading:
        return self._readings[partition]

    @property
    def begun(self) -> dict[str, DividedEvent]:
        """Events that are partly in the queues, by partition."""
        return {
            name: DividedEvent(reading.begun.offset, reading.stands.upto)
            for name, reading in self._readings.items()
            if reading.stands.upto and not reading.is_new
        }

    async def take_over(self, logs: Mapping[str, str]) -> Mapping[str, int]:
        """Take these partitions over, each with the id of its log; returns the offsets to read from. Raises
        `Unavailable` also if a log was replaced: the next try may see the new one."""
        await self._store.bus_flushes.take_over(logs, self.session)
        self._logs |= logs
        self._passed_over = {name: upto for name, upto in self._passed_over.items() if name not in logs}
        return await self.read_again(logs)

    async def read_again(self, partitions: Collection[str]) -> Mapping[str, int]:
        stored = await self._store.bus_flushes.read_positions(list(partitions))
        self._readings |= {
            name: PartitionReading.begin(stored.get(name, LogPosition()), self._logs[name]) for name in partitions
        }
        self._forget_gaps(partitions)  # they are found again
        log.info("positions of the log read", partitions=len(partitions))
        return self.read_on(partitions)

    def read_on(self, partitions: Collection[str]) -> dict[str, int]:
        return {name: self._readings[name].begun.offset for name in partitions}

    def move(self, reached: Mapping[str, LogPosition]) -> None:
        self._readings |= {name: PartitionReading(at, at.position) for name, at in reached.items()}
        self._forget_gaps(reached)

    def gaps_before(self, partitions: Collection[str]) -> list[LogGap]:
        """The gaps in these partitions, which the next flush passes."""
        return [gap for name, gap in self._gaps.items() if name in partitions]

    def note_ends(self, ends: Mapping[str, int]) -> None:
        """Note where partitions end: records before the end of a new log may be skipped."""
        self._ends = ends
        if self._begins_at_end:
            new = {name: end for name, end in ends.items() if name in self._readings and self._readings[name].is_new}
            self._passed_over = new | self._passed_over

    def read_chunk(self, chunk: Chunk) -> list[LogEntry]:
        """The entries of a chunk that count. Reports records that are lost or skipped."""
        partition = chunk.partition
        self._look_for_end(chunk)
        reading, begins = self._readings[partition], self._passed_over.get(partition, 0)
        self._look_for_loss(reading, chunk)
        entries = read_entries(partition, chunk.values, chunk.offsets, chunk.next)
        if chunk.first >= begins:
            if not reading.is_new:
                self._passed_over.pop(partition, None)
            return entries
        wanted = [entry for entry in entries if entry.offset >= begins]
        _tell_loss(len(entries) - len(wanted))
        # The first flush moves the position there, so that the next process begins there too.
        passed = [replace(entries[0], event=None, next=begins)] if reading.is_new else []
        return passed + wanted

    def _look_for_end(self, chunk: Chunk) -> None:
        """If the log ends before the position, begin at its start: another log has taken its place under the same
        id."""
        partition, reading = chunk.partition, self._readings[chunk.partition]
        if self._passed_over.get(partition, 0) > chunk.first or chunk.first >= reading.begun.offset:
            return
        self._readings[partition] = PartitionReading(reading.stands, replace(reading.begun, offset=0), is_new=True)
        if self._begins_at_end:
            self._passed_over[partition] = max(self._ends.get(partition, 0), chunk.next)

    def _look_for_loss(self, reading: PartitionReading, chunk: Chunk) -> None:
        stood = reading.stands.position.offset
        if reading.is_new:
            log.warning("the log of the bus is another one", partition=chunk.partition, stood=stood)
            # It is not known how much of the old log was unread; at least one loss has to show.
            _tell_loss(max(chunk.first, 1))
            passed_over = max(self._passed_over.get(chunk.partition, 0) - chunk.first, 0)
            self._gaps[chunk.partition] = LogGap(max(chunk.first, 1) + passed_over, is_new_log=True)
        elif reading.stands.flush and chunk.first > reading.begun.offset:
            log.warning("the log of the bus has lost records", partition=chunk.partition, stood=stood, next=chunk.first)
            _tell_loss(chunk.first - reading.begun.offset)
            self._gaps[chunk.partition] = LogGap(chunk.first - reading.begun.offset)

    def _forget_gaps(self, partitions: Collection[str]) -> None:
        for name in partitions:
            self._gaps.pop(name, None)

    def count_lag(self, ends: Mapping[str, int]) -> int:
        known = self._readings
        return sum(max(end - known[name].begun.offset, 0) for name, end in ends.items() if name in known)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _tell_loss(events: int) -> None:
    BUS_EVENTS_LOST.labels(OTHER, "log").inc(events)


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
    def __init__(self, store: Store, wake: WakeAll, now: Callable[[], Awaitable[datetime]]) -> None:
        self._store = store
        self._wake = wake
        self._now = now

    async def run_once(self, *, after: timedelta = _UNWOKEN_AFTER) -> Swept:
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
