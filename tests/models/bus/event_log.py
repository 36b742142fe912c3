"""The log of the bus in memory: two partitions, and one group of readers that share them."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random

from shared.clock.rules.callbacks import DeliveryError, TopicMessage, Undeliverable
from shared.core.documents import LogRange
from shared.drivers.kafka import NO_TOPICS, LateRecords, TopicSpec, check_keys
from shared.drivers.kafka.reading import Chunk, Positions
from tests.models.simulated.steps import Gate

PARTITIONS = 2
LOG_ID = "log"
_READ_AT_ONCE = 3
_LOOK_SECONDS = 1.0


class EventLog:
    """The records of each partition, and who reads which."""

    def __init__(self, topic: str, chance: Random) -> None:
        self.partitions: dict[str, list[bytes]] = {f"{topic}/{number}": [] for number in range(PARTITIONS)}
        self.readers: list[EventReader] = []
        self._topic = topic
        self._chance = chance

    def append(self, key: bytes, record: bytes) -> None:
        """Append a record to the partition of its key."""
        self.partitions[f"{self._topic}/{zlib.crc32(key) % PARTITIONS}"].append(record)

    def rebalance(self) -> None:
        """Give each partition to some reader, who hears of it when it reads next; who had it hears as late."""
        for reader in self.readers:
            reader.assigned = set()
        for name in self.partitions if self.readers else ():
            self._chance.choice(self.readers).assigned.add(name)


class EventLogStream:
    """One process's stream, with the log of the bus alone."""

    delivers = False

    def __init__(self, event_log: EventLog, gate: Gate) -> None:
        self.event_log = event_log
        self.gate = gate

    async def verify(self, topics: Mapping[str, TopicSpec] = NO_TOPICS) -> None:
        """It is as it should be."""

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        check_keys(values, keys)

        async def append() -> None:
            for key, value in zip(keys or (), values, strict=True):
                self.event_log.append(key, value)

        await self.gate.take("log.append", append, *values)

    async def append(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes], **_: float
    ) -> Sequence[LateRecords]:
        await self.publish(topic, values, keys=keys)
        return ()

    async def deliver(self, messages: Sequence[TopicMessage]) -> list[DeliveryError | None]:
        return [Undeliverable("users have no topics in the model") for _ in messages]

    async def find_ranges(self, topic: str) -> Mapping[str, LogRange]:
        async def find() -> dict[str, LogRange]:
            return {name: LogRange(0, len(log), LOG_ID) for name, log in self.event_log.partitions.items()}

        found: dict[str, LogRange] = await self.gate.take("log.ends", find)
        return found

    @asynccontextmanager
    async def reader(
        self, pattern: str, *, group: str, positions: Positions | None = None
    ) -> AsyncIterator["EventReader"]:
        assert positions is not None, "the bus keeps its positions"
        reader = EventReader(self, positions)
        self.event_log.readers.append(reader)
        self.event_log.rebalance()
        try:
            yield reader
        finally:
            self.event_log.readers.remove(reader)
            self.event_log.rebalance()

    async def ping(self) -> None:
        """The log is always there."""

    async def close(self) -> None:
        """Nothing is open."""


class EventReader:
    """See `shared.drivers.kafka.Reader`. It reads at most three records of a partition at a time."""

    def __init__(self, stream: EventLogStream, positions: Positions) -> None:
        self.assigned: set[str] = set()
        self._stream = stream
        self._positions = positions
        self._next: dict[str, int] = {}

    async def read(self, wait_seconds: float) -> list[Chunk]:
        ends = asyncio.get_running_loop().time() + wait_seconds
        while True:
            await self._follow_assignment()
            if self._has_more():
                return await self._fetch()
            if asyncio.get_running_loop().time() >= ends:
                return []
            await asyncio.sleep(_LOOK_SECONDS)

    def ends(self) -> dict[str, int]:
        return {name: len(self._log[name]) for name in self._next}

    async def rewind(self, partition: str, position: int) -> None:
        if partition in self._next:
            self._next[partition] = position

    async def report(self, positions: Mapping[str, int]) -> None:
        """Nobody draws lag graphs of a model."""

    @property
    def _log(self) -> dict[str, list[bytes]]:
        return self._stream.event_log.partitions

    async def _follow_assignment(self) -> None:
        assigned = set(self.assigned)
        self._next = {name: position for name, position in self._next.items() if name in assigned}
        if fresh := sorted(assigned - self._next.keys()):
            self._next |= await self._positions(dict.fromkeys(fresh, LOG_ID))

    def _has_more(self) -> bool:
        return any(position < len(self._log[name]) for name, position in self._next.items())

    async def _fetch(self) -> list[Chunk]:
        places = dict(self._next)

        async def fetch() -> list[Chunk]:
            chunks = [_read_chunk(name, self._log[name], position) for name, position in sorted(places.items())]
            return [chunk for chunk in chunks if chunk.values]

        fetched: list[Chunk] = await self._stream.gate.take("log.fetch", fetch, *sorted(places))
        self._next |= {chunk.partition: chunk.next for chunk in fetched}
        return fetched


def _read_chunk(partition: str, log: list[bytes], position: int) -> Chunk:
    upto = min(position + _READ_AT_ONCE, len(log))
    return Chunk(partition, list(range(position, upto)), upto, list(log[position:upto]))
