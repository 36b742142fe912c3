"""The fan-out: reads the log of the bus, folds the events, and stores them with its positions.

    read ──> merge by arrival ──> fold ──> flush: positions and chunks in one transaction ──> wake
                                  ^────────── entries that did not fit into one flush

The stored positions are the only truth about which events are queued. A fold begins at them and can only be stored on
top of them. So of two processes that hold the same records, one stores its fold; the other discards its own and reads
on from the stored positions. All happens in one task: nothing is read while a flush waits for MongoDB, which is the
back-pressure, and memory holds one read of the log.

A subscription of a later version that this process cannot read may want any event. So this process then leaves the log
to processes that can read it, and asks again later.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Sequence

import structlog

from shared.bus.flushing import LogFlusher, LogPositions, UnwokenUpkeep
from shared.bus.rules.folding import LogEntry, merge_entries
from shared.bus.store_subscriptions import UnreadableSubscriptions
from shared.core.errors import Unavailable
from shared.drivers.kafka import Stream
from shared.drivers.kafka.patience import read_patiently
from shared.drivers.kafka.reading import Reader
from shared.runtime.bus_settings import BusSettings
from shared.runtime.lifecycle import Background
from shared.runtime.loops import Backoff, Outage
from shared.runtime.metrics import BUS_LOG_LAG
from shared.store import Store

log = structlog.get_logger(__name__)

_BACKOFF = Backoff(first_seconds=0.1, cap_seconds=5)
_READ_SECONDS = 0.5
_TOLD = 20


class FanOut(Background):
    """A component: one member of the consumer group. `verify` raises `Unavailable` for an unfit log."""

    def __init__(
        self,
        stream: Stream,
        store: Store,
        flusher: LogFlusher,
        unwoken: UnwokenUpkeep,
        settings: BusSettings,
        verify: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__("fanout", self._serve)
        self._stream = stream
        self._flusher = flusher
        self._unwoken = unwoken
        self._settings = settings
        self._verify = verify
        self._positions = LogPositions(store, begins_at_end=settings.on_new_log == "end")

    async def _serve(self, stopping: asyncio.Event) -> None:
        outage = Outage("the fan-out waits for the log", stopping, _BACKOFF)
        pattern, group = re.escape(self._settings.log_topic), self._settings.group
        while not stopping.is_set():
            try:
                await self._verify()
                await self._unwoken.run_once()
                await self._flusher.learn()
                async with self._stream.reader(pattern, group=group, positions=self._positions.take_over) as reader:
                    outage.end()
                    await self._listen(reader, stopping)
            except UnreadableSubscriptions as error:
                log.error(
                    "a later version's subscriptions are in the way: the log is left to it", ids=error.ids[:_TOLD]
                )
                BUS_LOG_LAG.set(0)  # no partition is read
                await outage.wait(error)
            except Unavailable as error:
                await outage.wait(error)
        await self._positions.close()

    async def _listen(self, reader: Reader, stopping: asyncio.Event) -> None:
        """Read and flush until `stopping` is set. Raises `Unavailable` when the reader seems broken."""
        while not stopping.is_set():
            chunks = await read_patiently(reader, _READ_SECONDS, whose="the fan-out", stopping=stopping)
            ends = reader.ends()
            self._positions.note_ends(ends)
            if entries := merge_entries([self._positions.read_chunk(chunk) for chunk in chunks]):
                await self._flush_all(entries, reader, stopping)
            BUS_LOG_LAG.set(self._positions.count_lag(ends))

    async def _flush_all(self, entries: Sequence[LogEntry], reader: Reader, stopping: asyncio.Event) -> None:
        """Flush the entries, in as many steps as needed. Discarded entries are read again."""
        partitions, done = {entry.partition for entry in entries}, 0
        while done < len(entries) and not stopping.is_set():
            taken = await self._flush(entries[done:], stopping)
            if taken is None:
                await self._discard(partitions, reader)
                return
            done += taken
        await reader.report(self._positions.read_on(partitions))

    async def _flush(self, entries: Sequence[LogEntry], stopping: asyncio.Event) -> int | None:
        """Flush, however long MongoDB is away; return the number of stored entries, or `None` if they must be
        discarded. Raises `UnreadableSubscriptions`."""
        outage = Outage("the fan-out waits to store", stopping, _BACKOFF)
        while True:
            try:
                return await self._flusher.flush(entries, self._positions)
            except UnreadableSubscriptions:
                raise
            except Unavailable as error:
                if stopping.is_set():
                    raise
                await outage.wait(error)

    async def _discard(self, partitions: Collection[str], reader: Reader) -> None:
        """Drop the entries, because another process moved a position, and read on from the stored positions. Wake
        the queues that the other process flushed, because it may have died before it woke them."""
        log.info("a fold was lost", partitions=len(partitions))
        for name, position in (await self._positions.read_again(partitions)).items():
            await reader.rewind(name, position)
        await self._unwoken.run_once()
