"""Lines of records before each partition: one call's records after the other's.

The driver takes no records for a partition until it has sent those that it took before: a caller would wait there,
with all its records for other partitions. So later records wait in a line for their partition, and go together next.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import RecordMetadata
from msgspec import Struct

from shared.domain.errors import Unavailable
from shared.runtime.coalescer import Coalescer
from shared.runtime.tracing import record_headers
from shared.stream.kafka.acknowledgements import abandon_all, look_at
from shared.stream.kafka.connections import translate_errors
from shared.stream.kafka.partitions import places_by_partition
from shared.stream.kafka.produce import Pending, wait_for_all
from shared.stream.kafka.producers import Producers

BATCH_BYTES = 256 * 1024

Records = Sequence[tuple[bytes, bytes]]
"""Keys and values."""


class PartOfCall(Struct, frozen=True):
    """A call's records for one partition; `places` are their indexes, `is_behind` means that they wait for other
    calls."""

    places: Sequence[int]
    done: asyncio.Future[Any]
    is_behind: bool = False


class PartitionLine:
    """The records for one partition. The driver holds those of at most one call; the others wait here."""

    def __init__(self, producers: Producers, topic: str, partition: int, *, timeout_seconds: float) -> None:
        self._producers = producers
        self._topic = topic
        self._partition = partition
        self._timeout_seconds = timeout_seconds
        self._handed: asyncio.Future[RecordMetadata] | None = None
        self._waiting = Coalescer[Records, None](self._append_all, most=BATCH_BYTES, size=_size)

    @property
    def is_free(self) -> bool:
        """Whether all earlier records were acknowledged or failed."""
        return (self._handed is None or self._handed.done()) and not self._waiting.is_busy

    async def hand_over(self, producer: AIOKafkaProducer, batch: BatchBuilder) -> "asyncio.Future[RecordMetadata]":
        """Hand a batch to the driver. The driver takes it at once while the line is free."""
        self._handed = await producer.send_batch(batch, self._topic, partition=self._partition)
        return self._handed

    def wait_for_turn(self, records: Records, deadline: float) -> "asyncio.Future[None]":
        """Append the records in their turn, if the turn comes before `deadline` (the loop's clock)."""
        done = self._waiting.ask(records)
        done.add_done_callback(look_at)
        asyncio.get_running_loop().call_at(deadline, _give_up, done)
        return done

    async def _append_all(self, waiting: Sequence[Records]) -> Sequence[None]:
        with translate_errors():
            async with asyncio.timeout(2 * self._timeout_seconds), self._producers.borrow() as shared:
                handed = await self._hand_over_all(shared.producer, [record for those in waiting for record in those])
                if failures := await wait_for_all(handed):
                    raise Unavailable(f"Kafka: {failures[0]!r}")
        return [None] * len(waiting)

    async def _hand_over_all(self, producer: AIOKafkaProducer, records: Records) -> Pending:
        handed: Pending = []
        try:
            for batch in _batches(producer, records):
                sent = await self.hand_over(producer, batch)
                handed.append(sent)
        except BaseException:
            abandon_all(handed)
            raise
        return handed


class PartitionLines:
    """The lines of all partitions that have had records."""

    def __init__(self, producers: Producers, *, timeout_seconds: float) -> None:
        self._producers = producers
        self._timeout_seconds = timeout_seconds
        self._lines: dict[tuple[str, int], PartitionLine] = {}

    async def hand_over(
        self, producer: AIOKafkaProducer, topic: str, records: Records, deadline: float
    ) -> Sequence[PartOfCall]:
        """Hand each record to the driver, or to its partition's line. Raises the driver's errors."""
        partitions, keys = sorted(await producer.partitions_for(topic)), [key for key, _ in records]
        parts: list[PartOfCall] = []
        try:
            for number, places in places_by_partition(keys, len(partitions)).items():
                line, own = self._line(topic, partitions[number]), [records[place] for place in places]
                is_behind = not line.is_free
                batch = None if is_behind else _make_one_batch(producer, own)
                if batch is None:
                    parts.append(PartOfCall(places, line.wait_for_turn(own, deadline), is_behind))
                else:
                    parts.append(PartOfCall(places, await line.hand_over(producer, batch)))
        except BaseException:
            abandon_all(part.done for part in parts)
            raise
        return parts

    def _line(self, topic: str, partition: int) -> PartitionLine:
        line = self._lines.get((topic, partition))
        if line is None:
            line = PartitionLine(self._producers, topic, partition, timeout_seconds=self._timeout_seconds)
            self._lines[topic, partition] = line
        return line


def _make_one_batch(producer: AIOKafkaProducer, records: Records) -> BatchBuilder | None:
    """All records as one batch; `None` if they do not fit."""
    if _size(records) > BATCH_BYTES:
        return None
    batch, count = _fill(producer, records)
    return batch if count == len(records) else None


def _batches(producer: AIOKafkaProducer, records: Records) -> Iterator[BatchBuilder]:
    """The records as produce batches. A record that is too large gets its own batch, so that the broker judges it."""
    first = 0
    while first < len(records):
        batch, count = _fill(producer, records[first:])
        first += count
        yield batch


def _fill(producer: AIOKafkaProducer, records: Records) -> tuple[BatchBuilder, int]:
    """A batch of the first records that fit, and their number."""
    headers = [(name, value.encode()) for name, value in record_headers().items()]
    batch, count = producer.create_batch(), 0
    for key, value in records:
        if batch.append(timestamp=None, key=key, value=value, headers=headers) is None:
            break
        count += 1
    batch.close()
    return batch, count


def _size(records: Records) -> int:
    return sum(len(key) + len(value) for key, value in records)


def _give_up(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_exception(Unavailable("Kafka: a partition has not answered in time"))
