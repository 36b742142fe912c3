"""The listener: reads the feedback topics, folds their records into counts, stores counts and position together.

    read ──> fold (one per partition, from its stored position) ──> flush: position and counts in one transaction

The stored position is the only truth about what is counted. A fold begins at it and can only be stored on top of it. So
of two processes that hold the same records, one stores its fold; the other discards its own and reads on from the
stored position. All happens in one task: nothing is read while a fold waits for MongoDB, which is the back-pressure.
"""

import asyncio
import time
from collections.abc import Mapping

import structlog

from shared.core.documents import Position
from shared.core.errors import Unavailable
from shared.drivers.kafka import Stream
from shared.drivers.kafka.patience import read_patiently
from shared.drivers.kafka.reading import Chunk, Reader
from shared.push.rules.feedback import Fold
from shared.runtime.faults import fault
from shared.runtime.lifecycle import Background
from shared.runtime.loops import Backoff, Outage
from shared.runtime.metrics import FEEDBACK_FLUSH_AGE, FEEDBACK_FLUSHES, FEEDBACK_LAG, FEEDBACK_RECORDS
from shared.runtime.settings import FeedbackSettings
from shared.runtime.tracing import root
from shared.store import Store

log = structlog.get_logger(__name__)

_BACKOFF = Backoff(first_seconds=0.1, cap_seconds=5)
_READ_SECONDS = 0.5


class Listener(Background):
    """A component: one member of the consumer group."""

    def __init__(self, stream: Stream, store: Store, settings: FeedbackSettings) -> None:
        super().__init__("feedback", self._serve)
        self._stream = stream
        self._store = store
        self._settings = settings
        self._folds: dict[str, Fold] = {}
        self._due = 0.0
        self._stored_at = 0.0

    async def _serve(self, stopping: asyncio.Event) -> None:
        self._mark_stored()
        FEEDBACK_FLUSH_AGE.set_function(lambda: time.monotonic() - self._stored_at)
        outage = Outage("feedback waits for the stream", stopping, _BACKOFF)
        while not stopping.is_set():
            try:
                async with self._stream.reader(
                    self._settings.topics, group=self._settings.group, positions=self._begin
                ) as reader:
                    outage.end()
                    await self._listen(reader, stopping)
            except Unavailable as error:
                await outage.wait(error)

    async def _listen(self, reader: Reader, stopping: asyncio.Event) -> None:
        """Read, fold and flush until `stopping` is set. Raises `Unavailable` when the reader seems broken."""
        self._due = time.monotonic() + self._settings.flush_seconds
        while not stopping.is_set():
            for chunk in await self._read(reader, stopping):
                await self._fold(chunk, reader, stopping)
            if time.monotonic() >= self._due:
                await self._flush_all(reader, stopping)
        await self._flush_all(reader, stopping)

    async def _read(self, reader: Reader, stopping: asyncio.Event) -> list[Chunk]:
        wait_seconds = min(max(self._due - time.monotonic(), 0.0), _READ_SECONDS)
        return await read_patiently(reader, wait_seconds, whose="feedback", stopping=stopping)

    async def _begin(self, logs: Mapping[str, str]) -> Mapping[str, int]:
        """Begin a fold in each partition at its stored position; unstored records are read again. Raises
        `Unavailable` if a log was replaced: the next answer may name the new one."""
        await self._store_orphans(logs)
        stored = await self._store.feedbacks.positions(list(logs))
        self._folds |= {
            partition: Fold(stored.get(partition, Position()), log_id) for partition, log_id in logs.items()
        }
        log.info("feedback positions read", partitions=len(logs), stored=len(stored))
        return {partition: self._folds[partition].first for partition in logs}

    async def _store_orphans(self, logs: Mapping[str, str]) -> None:
        """Store the folds of replaced logs, because their records cannot be read again."""
        for partition, log_id in logs.items():
            fold = self._folds.get(partition)
            if fold is not None and fold.moved and fold.log != log_id:
                log.warning("feedback topic was made anew", partition=partition, stood=fold.end)
                await self._store_fold(partition, fold)

    async def _fold(self, chunk: Chunk, reader: Reader, stopping: asyncio.Event) -> None:
        fold = self._folds[chunk.partition]
        if chunk.first < fold.end:
            log.warning("feedback log lost its end", partition=chunk.partition, stood=fold.end, begins=chunk.first)
        fold.add(chunk.values, chunk.next)
        if fold.full:
            await self._flush(chunk.partition, reader, stopping)

    async def _flush_all(self, reader: Reader, stopping: asyncio.Event) -> None:
        for partition in list(self._folds):
            await self._flush(partition, reader, stopping)
        await reader.report({partition: fold.first for partition, fold in self._folds.items()})
        self._mark_stored()
        ends = reader.ends()
        FEEDBACK_LAG.set(
            sum(max(end - self._folds[name].first, 0) for name, end in ends.items() if name in self._folds)
        )

    def _mark_stored(self) -> None:
        self._stored_at = time.monotonic()
        self._due = self._stored_at + self._settings.flush_seconds

    async def _flush(self, partition: str, reader: Reader, stopping: asyncio.Event) -> None:
        """Store the partition's fold, however long MongoDB is away. After `stopping`, try only once."""
        outage = Outage("feedback waits to be stored", stopping, _BACKOFF, partition=partition)
        while self._folds[partition].moved:
            try:
                stored = await self._store_fold(partition, self._folds[partition])
            except Unavailable as error:
                if stopping.is_set():
                    return
                await outage.wait(error)
            else:
                if not stored:
                    await self._discard(partition, reader)
                return

    async def _store_fold(self, partition: str, fold: Fold) -> bool:
        """Store the fold and begin the next one after it; return false if another process moved the position."""
        await fault("feedback.before_flush")
        with root("flush", partition=partition, records=fold.counted):
            stored = await self._store.feedbacks.flush(
                partition, fold.start, fold.stop, fold.counts, max_outcomes=self._settings.max_outcomes
            )
        await fault("feedback.after_flush")
        if not stored:
            FEEDBACK_FLUSHES.labels("lost").inc()
            return False
        self._folds[partition] = Fold(fold.stop, fold.log)
        FEEDBACK_FLUSHES.labels("stored").inc()
        FEEDBACK_RECORDS.labels("counted").inc(fold.counted)
        for reason, count in fold.skipped.items():
            FEEDBACK_RECORDS.labels(reason.value).inc(count)
        return True

    async def _discard(self, partition: str, reader: Reader) -> None:
        """Drop the fold, because another process moved the position, and read on from there. Raises `Unavailable` if
        that process reads another log: only a new reader can change to it."""
        lost = self._folds[partition]
        begins = await self._begin({partition: lost.log})
        log.info("feedback fold lost", partition=partition, began=lost.first, stands=begins[partition])
        await reader.rewind(partition, begins[partition])
