"""Idempotent publishing outside of any transaction.

    record ──> the partition of its key ──> that partition's line ──> a produce request ──> acknowledged

A partition takes the records of one call after those of the other. The partition of a key is murmur2 of its bytes, as
in Kafka's own producers.
"""

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import RecordMetadata
from msgspec import Struct

from shared.core.errors import Unavailable
from shared.drivers.kafka import LateRecords, check_keys
from shared.drivers.kafka.produce import Framing, Pending, append, look_at, wait_for_all
from shared.drivers.kafka.producers import Producers, SharedProducer
from shared.drivers.kafka.servers import KafkaServers, answer_within, translate_errors
from shared.runtime.cached import Coalescer
from shared.runtime.server_settings import StreamSettings
from shared.runtime.tracing import record_headers

log = structlog.get_logger(__name__)
_SEED, _MIX, _SHIFT = 0x9747B28C, 0x5BD1E995, 24
_POSITIVE = 0x7FFFFFFF
_WORTH_IT = 8  # with fewer keys, numpy costs more than it saves


def partitions_of(keys: Sequence[bytes], count: int) -> list[int]:
    """The partition number of each key, of `count` partitions."""
    if len(keys) < _WORTH_IT:
        return [(murmur2(key) & _POSITIVE) % count for key in keys]
    # numpy is imported here: a process that publishes little does without it.
    import numpy as np

    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    width = (int(lengths.max()) + 4) // 4 * 4
    padded = np.frombuffer(b"".join(key.ljust(width, b"\0") for key in keys), "<u4").reshape(len(keys), -1)
    whole, left = lengths // 4, lengths % 4
    mix = np.uint32(_MIX)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    for place in range(padded.shape[1]):
        words = padded[:, place] * mix
        words = (words ^ (words >> np.uint32(_SHIFT))) * mix
        hashes = np.where(place < whole, (hashes * mix) ^ words, hashes)
    # The word after a key's whole words holds its last bytes; the padding is zero.
    ends = padded[np.arange(len(keys)), whole]
    hashes = np.where(left > 0, (hashes ^ ends) * mix, hashes)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * mix
    hashes ^= hashes >> np.uint32(15)
    places: list[int] = ((hashes & np.uint32(_POSITIVE)) % np.uint32(count)).tolist()
    return places


def is_well(done: asyncio.Future[Any]) -> bool:
    """Whether the brokers acknowledged the record."""
    return done.done() and not done.cancelled() and done.exception() is None


def is_of_producer(done: asyncio.Future[Any]) -> bool:
    """Whether this end is a reason to replace the producer. `Unavailable` comes from a line, not from the producer."""
    return not is_well(done) and (done.cancelled() or not isinstance(done.exception(), Unavailable))


def translate(done: asyncio.Future[Any]) -> asyncio.Future[None]:
    """A future that ends with `done`; it raises `Unavailable` if that fails or is cancelled."""
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    told.add_done_callback(look_at)

    def tell(done: asyncio.Future[Any]) -> None:
        if told.done():
            return
        if is_well(done):
            told.set_result(None)
        else:
            told.set_exception(Unavailable(f"Kafka: {'given up' if done.cancelled() else done.exception()!r}"))

    done.add_done_callback(tell)
    return told


def abandon_all(handed: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel these futures, because the rest of their call failed."""
    for future in handed:
        future.cancel()


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
        async with answer_within(2 * self._timeout_seconds), self._producers.borrow() as shared:
            handed = await self._hand_over_all(shared.producer, [record for those in waiting for record in those])
            if failures := await wait_for_all(handed):
                raise Unavailable(f"Kafka: {failures[0]!r}")
        return [None] * len(waiting)

    async def _hand_over_all(self, producer: AIOKafkaProducer, records: Records) -> Pending:
        handed: Pending = []
        try:
            for batch in _batches(producer, records):
                handed.append(await self.hand_over(producer, batch))
        except BaseException:
            abandon_all(handed)
            raise
        return handed


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


T = TypeVar("T")
_Handed = tuple[SharedProducer, Sequence[PartOfCall]]


class Publisher:
    """An idempotent producer for all calls, opened at the first use and again after a failure.

    It has one request per partition on its way and numbers its records. So a record that it sends again keeps its
    place: none comes twice or overtakes another.
    """

    def __init__(self, servers: KafkaServers, settings: StreamSettings, *, client_id: str) -> None:
        options = {
            **servers.options(f"{client_id}-publish"),
            "enable_idempotence": True,
            "request_timeout_ms": int(settings.request_timeout_seconds * 1000),
            "compression_type": None if settings.compression == "none" else settings.compression,
            "max_batch_size": BATCH_BYTES,
            "max_request_size": max(settings.max_record_bytes, 2 * BATCH_BYTES),
        }
        self._producers = Producers(options)
        self._framing = Framing(BATCH_BYTES, settings.compression, transactional=False)
        self._timeout_seconds = settings.request_timeout_seconds
        self._lines: dict[tuple[str, int], PartitionLine] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turn = asyncio.Lock()
        self._handing: set[asyncio.Task[_Handed]] = set()

    async def publish(self, topic: str, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        if keys is None:
            async with answer_within(2 * self._timeout_seconds), self._producers.borrow() as shared:
                pending = await append(shared.producer, topic, values, self._framing)
                if failures := await wait_for_all(pending):
                    raise Unavailable(f"Kafka: {failures[0]!r}")
            return
        seconds = 2 * self._timeout_seconds
        late = await self.append(topic, values, keys, patience_seconds=seconds, seconds=seconds)
        await asyncio.gather(*(records.done for records in late))

    async def append(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes], *, patience_seconds: float, seconds: float
    ) -> Sequence[LateRecords]:
        check_keys(values, keys)
        records = list(zip(keys, values, strict=True))
        clock = asyncio.get_running_loop().time
        until, deadline = clock() + patience_seconds, clock() + seconds
        if self._producers.is_open and not self._handing:
            shared, parts = await self._hand_over(topic, records, deadline)
        else:
            handing = self._keep(self._hand_over_in_turn(topic, records, deadline))
            self._handing.add(handing)
            handing.add_done_callback(self._handing.discard)
            try:
                await asyncio.wait((handing,), timeout=patience_seconds)
            except asyncio.CancelledError:
                _ = self._keep(self._wait_until_appended(handing))
                raise
            if not handing.done():
                return [LateRecords(range(len(records)), translate(self._keep(self._wait_until_appended(handing))))]
            shared, parts = handing.result()
        awaited = _first_in_line(parts)
        try:
            if awaited:
                await asyncio.wait(awaited, timeout=max(0.0, until - clock()))
        finally:
            if all(done.done() for done in awaited):
                self._producers.give_back(shared, usable=not any(map(is_of_producer, awaited)))
            else:
                _ = self._keep(self._wait_for_late(awaited, shared))
        return [LateRecords(part.places, translate(part.done)) for part in parts if not is_well(part.done)]

    async def close(self) -> None:
        await self._producers.close()

    async def _hand_over_in_turn(self, topic: str, records: Records, deadline: float) -> _Handed:
        """Hand over when a producer is open, after the calls that waited before."""
        with translate_errors():
            async with asyncio.timeout_at(deadline), self._turn:
                return await self._hand_over(topic, records, deadline)

    async def _wait_until_appended(self, handing: asyncio.Task[_Handed]) -> None:
        shared, parts = await handing
        await self._wait_for_late(_first_in_line(parts), shared)
        for part in parts:
            await part.done

    async def _wait_for_late(self, awaited: Sequence[asyncio.Future[Any]], shared: SharedProducer) -> None:
        for done in awaited:
            done.add_done_callback(lambda done: shared.mistrust() if is_of_producer(done) else None)
        try:
            async with asyncio.timeout(2 * self._timeout_seconds):
                await wait_for_all(awaited)
        except TimeoutError:
            log.warning("a partition has not answered", seconds=2 * self._timeout_seconds)
        finally:
            self._producers.give_back(shared, usable=not any(map(is_of_producer, awaited)))

    def _keep(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(look_at)
        return task

    async def _hand_over(self, topic: str, records: Records, deadline: float) -> _Handed:
        async with answer_within(2 * self._timeout_seconds):
            shared = await self._producers.take()
            try:
                return shared, await self._divide(shared.producer, topic, records, deadline)
            except BaseException:
                self._producers.give_back(shared, usable=False)
                raise

    async def _divide(
        self, producer: AIOKafkaProducer, topic: str, records: Records, deadline: float
    ) -> Sequence[PartOfCall]:
        """Hand each record to the driver, or to its partition's line. Raises the driver's errors."""
        partitions = sorted(await producer.partitions_for(topic))
        by_partition: defaultdict[int, list[int]] = defaultdict(list)
        for place, number in enumerate(partitions_of([key for key, _ in records], len(partitions))):
            by_partition[number].append(place)
        parts: list[PartOfCall] = []
        try:
            for number, places in by_partition.items():
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


def _first_in_line(parts: Sequence[PartOfCall]) -> list[asyncio.Future[Any]]:
    return [part.done for part in parts if not part.is_behind]
