"""Schedules from outside: a consumer of a user's queue that drops repeats by message id, and what it was sent."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import aio_pika
import msgspec

from shared.domain.callbacks import RabbitCallback
from shared.domain.schedules import Definition
from shared.flow.schedules import Accepted, Wanted
from tests.e2e.house import House, until

NAMESPACE = "token:tests"


class Received(msgspec.Struct, frozen=True):
    """One message, and when it came by this process's clock."""

    message_id: str
    key: str
    due: datetime
    attempt: int
    body: bytes
    at: float


class Receiver:
    """Everything that came to one queue. `first` holds each message id once, as a user's consumer would act."""

    def __init__(self) -> None:
        self.all: list[Received] = []

    @property
    def times(self) -> Counter[str]:
        return Counter(each.message_id for each in self.all)

    @property
    def instants(self) -> Counter[tuple[str, datetime]]:
        """How many different messages there were for each key and instant: never more than one."""
        first = {each.message_id: each for each in self.all}
        return Counter((each.key, each.due) for each in first.values())

    async def got(self, count: int, seconds: float = 60) -> None:
        """Wait for so many different messages."""
        await until(lambda: len(self.times) >= count, f"{count} messages, {len(self.times)} came", seconds)


@asynccontextmanager
async def receiving(house: House, queue: str) -> AsyncIterator[Receiver]:
    """A durable quorum queue and its consumer."""
    receiver = Receiver()

    async def receive(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        headers = message.headers
        receiver.all.append(
            Received(
                str(message.message_id),
                str(headers["carillon-key"]),
                datetime.fromisoformat(str(headers["carillon-due"])),
                int(str(headers["carillon-attempt"])),
                message.body,
                asyncio.get_running_loop().time(),
            )
        )
        await message.ack()

    connection = await aio_pika.connect(house.environment["CARILLON_BROKER_URL"])
    async with connection, connection.channel() as channel:
        await channel.set_qos(prefetch_count=500)
        declared = await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"})
        await declared.consume(receive)
        yield receiver


async def scheduled(house: House, key: str, *seconds: float, queue: str = "users.queue", **fields: Any) -> Accepted:
    """A list of instants from now by the database's clock."""
    now = await house.with_.time.now()
    instants = tuple(sorted(now + timedelta(seconds=each) for each in seconds))
    wanted = Wanted(
        NAMESPACE,
        key,
        Definition(callback=RabbitCallback(queue=queue, payload='{"id":"42"}'), instants=instants, **fields),
    )
    [answer] = await house.with_.schedules.accept([wanted])
    assert isinstance(answer, Accepted), answer
    return answer
