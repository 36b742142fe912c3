"""The stream over the model of Kafka. The contract of all streams holds it to the real one (`tests/drivers/kafka`)."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime

from shared.clock.rules.callbacks import DeliveryError, TopicMessage, Undeliverable
from shared.core.documents import LogRange
from shared.core.errors import LaneLost, Unavailable
from shared.drivers.kafka import NO_TOPICS, Aborted, LateRecords, TopicSpec, check_keys
from shared.drivers.kafka.reading import Chunk, Positions, RangeReader
from shared.jobs.rules.batches import Batch, BatchPart
from tests.models.push.transactions import Content, Fenced, Kafka, Marker, Sent
from tests.models.simulated.steps import AtOnce, Gate


class ModelStream:
    """One process's stream. Its readers look for something new every `look_seconds`."""

    delivers = False

    def __init__(
        self,
        kafka: Kafka,
        gate: Gate | None = None,
        *,
        lanes: int = 4,
        seconds: float = 15.0,
        look_seconds: float = 0.01,
    ) -> None:
        self.kafka = kafka
        self.gate = gate or AtOnce()
        self.seconds = seconds
        self.look_seconds = look_seconds
        self._permits = asyncio.Semaphore(lanes)
        self._idle: list[ModelLane] = []

    async def setup(self, topics: Mapping[str, int | TopicSpec]) -> None:
        for topic in topics:
            self.kafka.publish(topic, [])

    async def verify(self, topics: Mapping[str, TopicSpec] = NO_TOPICS) -> None:
        if missing := sorted(topics.keys() - self.kafka.logs.keys()):
            raise Unavailable(f"topic {missing[0]} is missing: run `carillon init`")

    @asynccontextmanager
    async def lane(self) -> AsyncIterator["ModelLane"]:
        async with self._permits:
            lane = self._idle.pop() if self._idle else await self._start_lane()
            try:
                yield lane
            finally:
                if lane.usable:
                    self._idle.append(lane)

    async def recover(self, batch: Batch) -> BatchPart | None:
        self._idle = [lane for lane in self._idle if lane.id != batch.owner]
        await self._fence(batch.owner)
        return sent_by_owner(await self._read(batch), batch)

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        check_keys(values, keys)
        self.kafka.publish(topic, values)

    async def append(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes], **_: float
    ) -> Sequence[LateRecords]:
        await self.publish(topic, values, keys=keys)
        return ()

    async def deliver(self, messages: Sequence[TopicMessage]) -> list[DeliveryError | None]:
        return [Undeliverable("users have no topics in the model") for _ in messages]

    @asynccontextmanager
    async def reader(
        self, pattern: str, *, group: str, positions: Positions | None = None
    ) -> AsyncIterator["ModelReader"]:
        yield ModelReader(self, pattern, positions)

    async def spans(self, topic: str) -> Mapping[str, tuple[int, int]]:
        return {f"{topic}/0": (0, len(self.kafka.logs.get(topic, ())))}

    async def find_ranges(
        self, topic: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Mapping[str, LogRange]:
        raise AssertionError("a push reads no ranges")

    def read_ranges(self, ranges: Mapping[str, LogRange]) -> AbstractAsyncContextManager[RangeReader]:
        raise AssertionError("a push reads no ranges")

    async def ping(self) -> None:
        """The model is always there."""

    async def close(self) -> None:
        """Nothing is open."""

    async def _start_lane(self) -> "ModelLane":
        # Started before anybody can read the id.
        lane = ModelLane(self, f"lane-{secrets.token_hex(3)}")
        await self.gate.take("lane.start", lane.start, lane.id)
        return lane

    async def _fence(self, owner: str) -> None:
        async def fence() -> None:
            self.kafka.start(owner)

        await self.gate.take("lane.fence", fence, owner)

    async def _read(self, batch: Batch) -> Marker | None:
        async def read() -> Marker | None:
            return self.kafka.markers.get(_slot(batch))

        marker: Marker | None = await self.gate.take("marker.read", read, batch)
        return marker


class ModelLane:
    """A producer. It is `usable` until a transaction of it is not committed for certain."""

    def __init__(self, stream: ModelStream, id: str) -> None:
        self.id = id
        self.usable = True
        self._stream = stream
        self._epoch = 0

    async def start(self) -> None:
        """Begin the next epoch of the id."""
        self._epoch = self._stream.kafka.start(self.id)

    async def produce(self, batch: Batch, topic: str, records: Sequence[bytes], part: BatchPart) -> None:
        self.usable = False
        try:
            async with asyncio.timeout(self._stream.seconds):
                await self._transact(batch, topic, records, part)
        except (Fenced, Unavailable, TimeoutError) as error:
            self._stream.kafka.given_up.add(self.id)
            raise LaneLost(self.id, f"{type(error).__name__}: {error}") from error
        self.usable = True

    async def _transact(self, batch: Batch, topic: str, records: Sequence[bytes], part: BatchPart) -> None:
        sent = Sent(batch.id, part.number, self.id, topic, records)
        marker = Marker(_slot(batch), batch.id, batch.ordinal, self.id, part)
        await self._append(batch, Content(sent, marker))
        await self._commit(batch)

    async def _append(self, batch: Batch, content: Content) -> None:
        kafka = self._stream.kafka

        async def append() -> bool:
            kafka.append(self.id, self._epoch, content, now=asyncio.get_running_loop().time())
            return not self._stream.gate.strikes("refused")

        async def abort() -> None:
            kafka.abort(self.id, self._epoch)

        if not await self._stream.gate.take("lane.append", append, batch, self.id):
            await self._stream.gate.take("lane.abort", abort, batch, self.id)
            raise Aborted("a record was refused", final=self._stream.gate.strikes("final"))

    async def _commit(self, batch: Batch) -> None:
        async def commit() -> None:
            self._stream.kafka.commit(self.id, self._epoch, lagging=self._stream.gate.strikes("lag"))

        await self._stream.gate.take("lane.commit", commit, batch, self.id)


class ModelReader:
    """See `shared.drivers.kafka.Reader`. A topic has one partition."""

    def __init__(self, stream: ModelStream, pattern: str, positions: Positions | None) -> None:
        self._logs = stream.kafka.logs
        self._stream = stream
        self._pattern = re.compile(pattern)
        self._positions = positions
        self._next: dict[str, int] = {}

    async def read(self, wait_seconds: float) -> list[Chunk]:
        ends = asyncio.get_running_loop().time() + wait_seconds
        while not (chunks := await self._present()) and asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(self._stream.look_seconds)
        return chunks

    def ends(self) -> dict[str, int]:
        return dict(self._next)

    async def rewind(self, partition: str, position: int) -> None:
        if partition in self._next:
            self._next[partition] = position

    async def report(self, positions: Mapping[str, int]) -> None:
        """Nobody draws lag graphs of a model."""

    async def _present(self) -> list[Chunk]:
        found = [topic for topic in self._logs if self._pattern.fullmatch(topic)]
        if fresh := [f"{topic}/0" for topic in found if f"{topic}/0" not in self._next]:
            stored = await self._positions(dict.fromkeys(fresh, "")) if self._positions else {}
            self._next |= {partition: stored.get(partition, 0) for partition in fresh}
        if all(self._next[f"{topic}/0"] >= len(self._logs[topic]) for topic in found):
            return []

        async def fetch() -> list[Chunk]:
            chunks = [_chunk(self._logs[topic], f"{topic}/0", self._next[f"{topic}/0"]) for topic in found]
            return [chunk for chunk in chunks if chunk.values]

        fetched: list[Chunk] = await self._stream.gate.take("reader.fetch", fetch, *found)
        self._next |= {chunk.partition: chunk.next for chunk in fetched}
        return fetched


def sent_by_owner(marker: Marker | None, batch: Batch) -> BatchPart | None:
    """What the marker, read behind the fence, says about the owner's last take. Raises `Unavailable`."""
    if marker is not None and marker.ordinal > batch.ordinal:
        raise Unavailable(f"the marker of slot {batch.slot} is beyond batch {batch.id}")
    if marker is None or (marker.batch, marker.lane, marker.part.number) != (batch.id, batch.owner, batch.parts + 1):
        return None
    return marker.part


def _slot(batch: Batch) -> tuple[str, int]:
    return batch.job_id, batch.slot


def _chunk(log: list[bytes], partition: str, position: int) -> Chunk:
    return Chunk(partition, list(range(position, len(log))), len(log), list(log[position:]))
