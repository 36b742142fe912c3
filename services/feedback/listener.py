"""The feedback service: reads the feedback topics, folds what they say into counts, stores these with their position.

    read ──> fold (one a partition, from its stored position) ──> flush: position and counts in one transaction

The stored position is the only truth about what is counted. A fold begins at it and can only be stored on top of it, so
of two processes that hold the same records one stores them, and the other discards its fold and reads on from where
that one stood. All happens in one task: nothing is read while a fold waits for MongoDB, which is the back-pressure.
"""

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import suppress

import structlog

from shared.domain.errors import Unavailable
from shared.domain.feedback import Fold
from shared.runtime.faults import fault
from shared.runtime.lifecycle import Background
from shared.runtime.metrics import FEEDBACK_FLUSHES, FEEDBACK_RECORDS
from shared.runtime.retries import Backoff, next_delay
from shared.runtime.settings import FeedbackSettings
from shared.store import Store
from shared.stream import Chunk, Reader, Stream

log = structlog.get_logger(__name__)

_BACKOFF = Backoff(first_seconds=0.1, cap_seconds=5)
_READ_SECONDS = 0.5
_READ_FAILURES = 5


class Listener(Background):
    """A component: one member of the consumer group."""

    def __init__(self, stream: Stream, store: Store, settings: FeedbackSettings) -> None:
        super().__init__("feedback", self._serve)
        self._stream = stream
        self._store = store
        self._settings = settings
        self._folds: dict[str, Fold] = {}
        self._due = 0.0

    async def _serve(self, stopping: asyncio.Event) -> None:
        failures = 0
        while not stopping.is_set():
            try:
                async with self._stream.reader(
                    self._settings.topics, group=self._settings.group, positions=self._begin
                ) as reader:
                    failures = 0
                    await self._listen(reader, stopping)
            except Unavailable as error:
                failures += 1
                log.warning("feedback waits for the stream", reason=str(error))
                await _pause(stopping, failures)

    async def _listen(self, reader: Reader, stopping: asyncio.Event) -> None:
        """Read, fold and flush until it is time to stop. Raises `Unavailable` when the reader seems broken."""
        self._due = time.monotonic() + self._settings.flush_seconds
        while not stopping.is_set():
            for chunk in await self._read(reader, stopping):
                await self._fold(chunk, reader, stopping)
            if time.monotonic() >= self._due:
                await self._flush_all(reader, stopping)
        await self._flush_all(reader, stopping)

    async def _read(self, reader: Reader, stopping: asyncio.Event) -> list[Chunk]:
        wait_seconds = min(max(self._due - time.monotonic(), 0.0), _READ_SECONDS)
        for failures in range(1, _READ_FAILURES):
            try:
                return await reader.read(wait_seconds)
            except Unavailable as error:
                log.warning("feedback waits to read", reason=str(error), attempt=failures)
                await _pause(stopping, failures)
                if stopping.is_set():
                    return []
        return await reader.read(wait_seconds)

    async def _begin(self, partitions: list[str]) -> Mapping[str, int]:
        """Begin a fold in each partition at its stored position; what was folded there before is read again."""
        stored = await self._store.feedbacks.positions(partitions)
        for partition in partitions:
            self._folds[partition] = Fold(stored.get(partition, 0))
        log.info("feedback positions read", partitions=len(partitions), stored=len(stored))
        return stored

    async def _fold(self, chunk: Chunk, reader: Reader, stopping: asyncio.Event) -> None:
        fold = self._folds[chunk.partition]
        if chunk.first < fold.end:
            log.warning("feedback topic began anew", partition=chunk.partition, stood=fold.end, begins=chunk.first)
        fold.add(chunk.values, chunk.next)
        if fold.full:
            await self._flush(chunk.partition, reader, stopping)

    async def _flush_all(self, reader: Reader, stopping: asyncio.Event) -> None:
        for partition in list(self._folds):
            await self._flush(partition, reader, stopping)
        await reader.report({partition: fold.start for partition, fold in self._folds.items()})
        self._due = time.monotonic() + self._settings.flush_seconds

    async def _flush(self, partition: str, reader: Reader, stopping: asyncio.Event) -> None:
        """Store the partition's fold, however long MongoDB is away; once more only when it is time to stop."""
        failures = 0
        while self._folds[partition].moved:
            try:
                return await self._store_fold(partition, reader)
            except Unavailable as error:
                failures += 1
                log.warning("feedback waits to be stored", partition=partition, reason=str(error), attempt=failures)
                if stopping.is_set():
                    return None
                await _pause(stopping, failures)
        return None

    async def _store_fold(self, partition: str, reader: Reader) -> None:
        fold = self._folds[partition]
        await fault("feedback.before_flush")
        stored = await self._store.feedbacks.flush(
            partition, fold.start, fold.end, fold.counts, max_outcomes=self._settings.max_outcomes
        )
        await fault("feedback.after_flush")
        if not stored:
            await self._lost(partition, reader)
            return
        self._folds[partition] = Fold(fold.end)
        FEEDBACK_FLUSHES.labels("stored").inc()
        FEEDBACK_RECORDS.labels("counted").inc(fold.counted)
        for reason, count in fold.skipped.items():
            FEEDBACK_RECORDS.labels(reason.value).inc(count)

    async def _lost(self, partition: str, reader: Reader) -> None:
        """Somebody else moved the position: discard the fold and read on from there."""
        FEEDBACK_FLUSHES.labels("lost").inc()
        lost = self._folds[partition]
        stored = await self._begin([partition])
        position = stored.get(partition, 0)
        log.info("feedback fold lost", partition=partition, began=lost.start, stands=position)
        await reader.rewind(partition, position)


async def _pause(stopping: asyncio.Event, failures: int) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(next_delay(_BACKOFF, failures, random.random())):
            await stopping.wait()
