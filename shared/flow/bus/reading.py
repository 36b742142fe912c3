"""Positions in the log, as one reader has them: what is stored of each partition, and how far its log is read."""

from collections.abc import Collection, Mapping

import structlog
from msgspec import Struct
from msgspec.structs import replace

from shared.domain.bus.folding import DividedEvent, LogEntry, read_entries
from shared.domain.bus.notices import LogGap
from shared.domain.positions import Position
from shared.runtime.bounded_labels import OTHER
from shared.runtime.metrics import BUS_EVENTS_LOST
from shared.store import Store
from shared.store.bus.flushes import LogPosition
from shared.store.transactions import OwnSession
from shared.stream.reading import Chunk

log = structlog.get_logger(__name__)


class PartitionReading(Struct, frozen=True):
    """How far a partition is read: `stands` is what is stored, and `begun` follows from it in the log that is read.
    `is_new`: nothing was read of this log yet, and another one was read before it."""

    stands: LogPosition
    begun: Position
    is_new: bool = False

    @classmethod
    def begin(cls, stands: LogPosition, log_id: str) -> "PartitionReading":
        """Reading on in this log. Raises `Unavailable` for one that was left for another."""
        begun = stands.position.begin(log_id)
        return cls(stands, begun, is_new=len(begun.left) > len(stands.position.left))


class LogPositions:
    """The positions of one reader, and the session in which it flushes. `begins_at_end`: of a log that has taken the
    place of another one, what is there already is passed over."""

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
        """The session in which these partitions are flushed."""
        if self._session is None:
            self._session = self._store.bus_flushes.open_session()
        return self._session

    def __getitem__(self, partition: str) -> PartitionReading:
        """How far a partition is read."""
        return self._readings[partition]

    @property
    def begun(self) -> dict[str, DividedEvent]:
        """The events of which a part is brought, by their partitions."""
        return {
            name: DividedEvent(reading.begun.offset, reading.stands.upto)
            for name, reading in self._readings.items()
            if reading.stands.upto and not reading.is_new
        }

    async def take_over(self, logs: Mapping[str, str]) -> Mapping[str, int]:
        """The offsets at which these partitions are read on, each with the id of its log; they are this reader's from
        now on. Raises `Unavailable`, also where a log was replaced by another: the next answer may name that one."""
        await self._store.bus_flushes.take_over(logs, self.session)
        self._logs |= logs
        self._passed_over = {name: upto for name, upto in self._passed_over.items() if name not in logs}
        return await self.read_again(logs)

    async def read_again(self, partitions: Collection[str]) -> Mapping[str, int]:
        """The offsets at which these partitions are read on, as they are stored now. Raises `Unavailable`."""
        stored = await self._store.bus_flushes.read_positions(list(partitions))
        self._readings |= {
            name: PartitionReading.begin(stored.get(name, LogPosition()), self._logs[name]) for name in partitions
        }
        self._forget_gaps(partitions)  # they are found again
        log.info("positions of the log read", partitions=len(partitions))
        return self.read_on(partitions)

    def read_on(self, partitions: Collection[str]) -> dict[str, int]:
        """The offsets at which these partitions are read on."""
        return {name: self._readings[name].begun.offset for name in partitions}

    def move(self, reached: Mapping[str, LogPosition]) -> None:
        """Note what was stored."""
        self._readings |= {name: PartitionReading(at, at.position) for name, at in reached.items()}
        self._forget_gaps(reached)

    def gaps_before(self, partitions: Collection[str]) -> list[LogGap]:
        """The gaps that whoever moves on in these partitions passes."""
        return [gap for name, gap in self._gaps.items() if name in partitions]

    def note_ends(self, ends: Mapping[str, int]) -> None:
        """Note where partitions end: what lies before that in a log that is new may have to be passed over."""
        self._ends = ends
        if self._begins_at_end:
            new = {name: end for name, end in ends.items() if name in self._readings and self._readings[name].is_new}
            self._passed_over = new | self._passed_over

    def read_chunk(self, chunk: Chunk) -> list[LogEntry]:
        """The entries that count of those that were read. Tells of records that are gone, or passed over."""
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
        # The position moves there with the first of them, so that the next process begins there too.
        passed = [replace(entries[0], event=None, next=begins)] if reading.is_new else []
        return passed + wanted

    def _look_for_end(self, chunk: Chunk) -> None:
        """If the log ends before the position, the reader goes on at its beginning: that is a log in the place of
        the one that was read, under the same id."""
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
            # How much of the one before nobody has read is not known; that something is missing has to be seen.
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
        """How many records lie behind these positions, in partitions that end there."""
        known = self._readings
        return sum(max(end - known[name].begun.offset, 0) for name, end in ends.items() if name in known)

    async def close(self) -> None:
        """End the session."""
        if self._session is not None:
            await self._session.close()


def _tell_loss(events: int) -> None:
    BUS_EVENTS_LOST.labels(OTHER, "log").inc(events)
