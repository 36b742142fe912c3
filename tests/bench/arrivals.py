"""A user's queue, looked at from outside: how many messages it holds from moment to moment, and which.

While a rate is measured nobody consumes: a consumer would take a core from what is measured. The queue is asked for
its depth, and its messages are read and counted afterwards.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from time import monotonic
from typing import Self

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from msgspec import Struct
from pamqp.common import FieldTable

from shared.store import Store
from tests.bench.report import Wrong
from tests.bench.schedules import QUEUE
from tests.e2e.house import House

_QUORUM: FieldTable = {"x-queue-type": "quorum"}
_LOOKS = 20
_LOOK_SECONDS = 0.02
_QUIET_SECONDS = 1.0


class Arrival(Struct, frozen=True):
    """One message, and when it came by the database's clock."""

    message_id: str
    key: str
    due: datetime
    at: datetime


class Clock(Struct, frozen=True):
    """The database's clock, carried by ours: never behind it, so what looks early is, and ahead by less than a look."""

    database: datetime
    asked: float

    @classmethod
    async def of(cls, store: Store) -> Self:
        """By the quickest of some looks. The database tells whole milliseconds, rounded down."""
        looks = []
        for _ in range(_LOOKS):
            asked = monotonic()
            found = await store.now()
            looks.append((monotonic() - asked, cls(found + timedelta(milliseconds=1), asked)))
        return min(looks, key=lambda look: look[0])[1]

    def now(self) -> datetime:
        """What it tells."""
        return self.database + timedelta(seconds=monotonic() - self.asked)


class Filling(Struct, frozen=True):
    """How a queue filled: seconds since its messages were due, and how many were there."""

    looks: Sequence[tuple[float, int]]

    @property
    def seconds(self) -> float:
        """From the due moment to the last message."""
        return self.looks[-1][0]

    @property
    def rate(self) -> float:
        """Messages a second between the first look that saw some and the last."""
        (first, some), (last, all_) = self.looks[0], self.looks[-1]
        return (all_ - some) / max(last - first, _LOOK_SECONDS)


class Queue:
    """The durable quorum queue of one house."""

    def __init__(self, channel: AbstractChannel, house: House, clock: "Clock") -> None:
        self._channel = channel
        self._house = house
        self._clock = clock

    async def filled(self, count: int, due: datetime, *, seconds: float) -> Filling:
        """Watch until it holds so many. Raises `Wrong` if one is there before it is due, or some are missing after
        `seconds`."""
        looks: list[tuple[float, int]] = []
        while not looks or looks[-1][1] < count:
            depth = await self.depth()
            after = (self._clock.now() - due).total_seconds()
            if depth and after < 0:
                raise Wrong(f"{depth} messages {-after:.3f} s before they are due")
            if depth and (not looks or depth > looks[-1][1]):
                looks.append((after, depth))
            if after > seconds:
                raise Wrong(f"{depth:,} of {count:,} messages after {seconds:g} s\n{self._house.logs()}")
            await asyncio.sleep(_LOOK_SECONDS if after > -1 else -after - 1)
        return Filling(looks)

    async def depth(self) -> int:
        """How many messages wait."""
        declared = await self._channel.declare_queue(QUEUE, passive=True)
        return declared.declaration_result.message_count or 0

    async def check(self, keys: Sequence[str]) -> None:
        """Take all messages out. Raises `Wrong` unless there is one of each key."""
        found = [arrival async for arrival in self._taken(len(keys))]
        times, ids = Counter(each.key for each in found), {each.message_id for each in found}
        if times != Counter(keys) or len(ids) != len(keys):
            repeated = sum(count - 1 for count in times.values())
            raise Wrong(f"{len(times):,} of {len(keys):,} keys came, {len(ids):,} message ids, {repeated:,} repeats")

    @asynccontextmanager
    async def consumed(self) -> AsyncIterator[list[Arrival]]:
        """What arrives while the block runs."""
        found: list[Arrival] = []

        async def receive(message: AbstractIncomingMessage) -> None:
            found.append(_arrival(message, self._clock.now()))

        queue = await self._channel.declare_queue(QUEUE, passive=True)
        tag = await queue.consume(receive, no_ack=True)
        try:
            yield found
        finally:
            await queue.cancel(tag)

    async def _taken(self, count: int) -> AsyncIterator[Arrival]:
        """At least so many, and what comes in the second after."""
        async with self.consumed() as found:
            await _until(lambda: len(found) >= count, 60)
            await asyncio.sleep(_QUIET_SECONDS)
        for each in found:
            yield each


@asynccontextmanager
async def queue_of(house: House) -> AsyncIterator[Queue]:
    """The queue to which `schedules.fill` sends."""
    clock = await Clock.of(house.servers.store)
    connection = await aio_pika.connect(house.environment["CARILLON_BROKER_URL"])
    async with connection, connection.channel(publisher_confirms=False) as channel:
        await channel.declare_queue(QUEUE, durable=True, arguments=_QUORUM)
        yield Queue(channel, house, clock)


def _arrival(message: AbstractIncomingMessage, at: datetime) -> Arrival:
    due = datetime.fromisoformat(str(message.headers["carillon-due"]))
    return Arrival(str(message.message_id), str(message.headers["carillon-key"]), due, at)


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = monotonic() + seconds
    while not condition() and monotonic() < deadline:
        await asyncio.sleep(_LOOK_SECONDS)
