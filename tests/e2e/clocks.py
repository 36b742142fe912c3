"""Schedules from outside: a consumer of a user's queue that drops repeats by message id, and what it was sent."""

import asyncio
import re
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aio_pika
import aio_pika.abc
import msgspec

from carillon.wire.clock import Retry
from shared.clock.rules.callbacks import RabbitCallback
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import Definition
from shared.clock.schedules import Accepted, Wanted
from tests.e2e.house import House
from tests.waiting import SECONDS, until

NAMESPACE = "token:tests"


async def is_retried(house: House, letter: DeadLetter) -> bool:
    """Retry a letter; whether it is tried again, and not still in the hands of whoever buried it."""
    return list((await house.schedules.retry([letter])).again) == [letter.id]


class Received(msgspec.Struct, frozen=True):
    """One message, and when it came: `at` by this process's event loop, `came` by the clock of this machine, on which
    the database runs too."""

    message_id: str
    key: str
    due: datetime
    attempt: int
    body: bytes
    at: float
    came: datetime


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

    async def got(self, count: int, seconds: float = SECONDS) -> None:
        """Wait for so many different messages."""
        try:
            await until(lambda: len(self.times) >= count, f"{count} messages", seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {len(self.times)} came") from None


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
                datetime.now(UTC),
            )
        )
        await message.ack()

    connection = await aio_pika.connect(house.environment["CARILLON_BROKER_URL"])
    async with connection, connection.channel() as channel:
        await channel.set_qos(prefetch_count=500)
        await (await _declared(channel, queue)).consume(receive)
        yield receiver


async def declared(house: House, queue: str) -> None:
    """The same queue without a consumer: what comes waits there, and each message is delivered once."""
    connection = await aio_pika.connect(house.environment["CARILLON_BROKER_URL"])
    async with connection, connection.channel() as channel:
        await _declared(channel, queue)


async def _declared(channel: aio_pika.abc.AbstractChannel, queue: str) -> aio_pika.abc.AbstractQueue:
    return await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"})


async def scheduled(house: House, key: str, *seconds: float, queue: str = "users.queue", **fields: Any) -> Accepted:
    """A list of instants from now by the database's clock."""
    now = await house.servers.time.now()
    instants = tuple(sorted(now + timedelta(seconds=each) for each in seconds))
    wanted = Wanted(
        NAMESPACE,
        key,
        Definition(callback=RabbitCallback(queue=queue, payload='{"id":"42"}'), instants=instants, **fields),
    )
    [answer] = await house.schedules.accept([wanted])
    assert isinstance(answer, Accepted), answer
    return answer


async def crowd(
    house: House, schedules: int, instants: int, *, after: float, within: float, queue: str = "users.queue"
) -> list[Accepted]:
    """Many instants, `after` so many seconds from now by the database's clock and evenly spread over `within`.

    One counted refusal makes any of them a dead letter.
    """
    start = await house.servers.time.now() + timedelta(seconds=after)
    step = timedelta(seconds=within) / (schedules * instants)
    wanted = [
        Wanted(
            NAMESPACE,
            f"crowd-{number}",
            Definition(
                callback=RabbitCallback(queue=queue, payload="{}"),
                instants=tuple(_whole(start + step * (number + schedules * k)) for k in range(instants)),
                retry=Retry(attempts=1),
            ),
        )
        for number in range(schedules)
    ]
    answers = await house.schedules.accept(wanted)
    all_ = [answer for answer in answers if isinstance(answer, Accepted) and not answer.skipped]
    assert len(all_) == schedules, "all of it lies ahead"
    return all_


def _whole(moment: datetime) -> datetime:
    # To the millisecond, as instants are read by the API.
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


async def measured(port: int, name: str, **labels: str) -> float:
    """A metric on the page of the process with this health port, summed over all that have these labels."""
    page = await asyncio.to_thread(_page, port)
    total = 0.0
    for found in re.finditer(rf"^carillon_{name}(?:{{(.*)}})? (\S+)$", page, re.MULTILINE):
        if all(f'{label}="{value}"' in (found[1] or "") for label, value in labels.items()):
            total += float(found[2])
    return total


def _page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        page: str = answer.read().decode()
    return page
