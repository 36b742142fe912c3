"""A producer that many calls share, and the fast way to hand it many records.

The producer is replaced when one of its calls mistrusts it. Many records go as whole produce batches, spread over the
topic's partitions: `send_batch` with batches made here is many times faster than `send` (measured in
`tests/bench/RESULTS.md`).
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata
from msgspec import Struct

from shared.runtime.faults import fault
from shared.runtime.tracing import record_headers
from shared.stream.kafka.servers import abandon, stop

Pending = list[asyncio.Future[RecordMetadata]]


class Framing(Struct, frozen=True):
    """How records become produce batches. `most_bytes` counts before compression."""

    most_bytes: int
    compression: str
    transactional: bool


async def append(producer: AIOKafkaProducer, topic: str, records: Sequence[bytes], framing: Framing) -> Pending:
    """Hand all records to the producer; the futures resolve when the brokers have them.

    A record that does not fit a batch gets its own, so that the broker judges it.
    """
    # numpy is imported here: a process that only reads the stream or delivers single messages does without it.
    from shared.stream.kafka.record_batch import RecordBatch, cut, encode_headers

    partitions = sorted(await producer.partitions_for(topic))
    first = random.randrange(len(partitions))
    now_ms, headers = time.time_ns() // 1_000_000, encode_headers(record_headers())
    pending: Pending = []
    try:
        for turn, values in enumerate(cut(records, framing.most_bytes, len(headers)), first):
            batch = RecordBatch(
                values,
                now_ms=now_ms,
                compression=framing.compression,
                transactional=framing.transactional,
                headers=headers,
            )
            await fault("stream.produce_one")
            pending.append(await producer.send_batch(batch, topic, partition=partitions[turn % len(partitions)]))
    except BaseException:
        for future in pending:
            future.add_done_callback(look_at)
        raise
    return pending


async def wait_for_all(pending: Sequence[asyncio.Future[Any]]) -> list[BaseException]:
    outcomes = await asyncio.gather(*pending, return_exceptions=True)
    return [outcome for outcome in outcomes if isinstance(outcome, BaseException)]


def look_at(done: asyncio.Future[Any]) -> None:
    """Retrieve the error, so that asyncio does not log it: the caller may not await this future any more."""
    if not done.cancelled():
        done.exception()


class SharedProducer:
    """A started producer. After `usable` turns false, present users finish with it and no new one begins."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self.producer = producer
        self.usable = True
        self.users = 0
        self.topics: set[str] = set()

    def mistrust(self) -> None:
        self.usable = False

    async def send(
        self, topic: str, body: bytes, key: bytes | None, headers: list[tuple[str, bytes]]
    ) -> asyncio.Future[object]:
        """Return a future that resolves when the replicas in sync have the record. Raises the driver's errors."""
        self.topics.add(topic)
        sent: asyncio.Future[object] = await self.producer.send(topic, body, key=key, headers=headers)
        return sent


class Producers:
    """The current producer, made with these options of the driver."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._current: SharedProducer | None = None
        self._starting = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """Whether a usable producer exists. This asks no broker."""
        return self._current is not None and self._current.usable

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[SharedProducer]:
        shared = await self.take()
        try:
            yield shared
        except BaseException:
            self.give_back(shared, usable=False)
            raise
        self.give_back(shared, usable=True)

    async def take(self) -> SharedProducer:
        """Borrow the current producer; the caller gives it back."""
        shared = await self._start()
        shared.users += 1
        return shared

    def give_back(self, shared: SharedProducer, *, usable: bool) -> None:
        shared.usable = shared.usable and usable
        shared.users -= 1
        self._end_if_left(shared)

    def give_up(self, topics: Iterable[str]) -> None:
        """Give up a producer that used one of these deleted topics: its metadata requests would create the topic
        again."""
        if self._current is not None and not self._current.topics.isdisjoint(topics):
            self._current.usable = False
            self._end_if_left(self._current)

    async def close(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            self._end(stop(current.producer))
        await asyncio.gather(*self._ending)

    async def _start(self) -> SharedProducer:
        async with self._starting:
            if self._current is None or not self._current.usable:
                producer = AIOKafkaProducer(**self._options)
                try:
                    await producer.start()
                except BaseException:
                    self._end(stop(producer))
                    raise
                self._current = SharedProducer(producer)
            return self._current

    def _end_if_left(self, shared: SharedProducer) -> None:
        if shared.usable or shared.users:
            return
        if shared is self._current:
            self._current = None
        self._end(abandon(shared.producer))

    def _end(self, ending: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
