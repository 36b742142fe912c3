"""A producer that many calls share; it is replaced when one of them mistrusts it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer

from shared.drivers.kafka.servers import abandon, stop


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
