"""Consumers of tasks, and users' messages on their way to their queues.

Each consumer has its own channel, so that its prefetch and its end affect no other. Users' messages go by the
channel of their exchange; if one of many closed the channel, each is sent alone.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Self

import structlog
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from shared.clock.rules.callbacks import DeliveryError, QueueMessage
from shared.core.errors import Unavailable
from shared.drivers.rabbitmq import PUBLISHED, Inbox, wait_of
from shared.drivers.rabbitmq.confirms import ConfirmGroup, Entangled
from shared.drivers.rabbitmq.links import CLOSE_SECONDS, Line, Link, NoAnswer, answer_within

log = structlog.get_logger(__name__)
ANSWER_SECONDS = 10.0


class RabbitDelivery:
    """See `Delivery`. Only the first answer counts."""

    def __init__(self, subscription: "RabbitSubscription", message: AbstractIncomingMessage) -> None:
        self.body = message.body
        self.redelivered = bool(message.redelivered)
        self.waited_seconds = wait_of(message.headers.get(PUBLISHED), redelivered=self.redelivered)
        self._subscription = subscription
        self._message = message

    async def ack(self) -> None:
        async with self._subscription.answer():
            await self._message.ack()

    async def requeue(self) -> None:
        async with self._subscription.answer():
            await self._message.nack(requeue=True)


class RabbitSubscription:
    def __init__(self, line: Line, queue: str, name: str, prefetch: int) -> None:
        self._line = line
        self._queue = queue
        self._name = name
        self._prefetch = prefetch
        self._inbox: Inbox[AbstractIncomingMessage] = Inbox()
        self._link: Link | None = None
        self._channel: AbstractChannel | None = None

    async def __aenter__(self) -> Self:
        try:
            async with self._line.ask(f"subscribe to {self._queue}", ANSWER_SECONDS) as self._link:
                await self._consume(self._link)
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RabbitDelivery:
        return RabbitDelivery(self, await self._inbox.take())

    async def stop(self) -> None:
        if self._channel is None or self._inbox.ended:
            return
        left = self._inbox.end()
        async with self.answer():
            channel = await self._channel.get_underlay_channel()
            await channel.basic_cancel(self._name)
            for message in left:
                await message.nack(requeue=True)

    @asynccontextmanager
    async def answer(self) -> AsyncIterator[None]:
        """Answer the broker. On a dead connection this does nothing; a stuck connection ends the subscription."""
        try:
            async with answer_within("answer", ANSWER_SECONDS):
                yield
        except NoAnswer as error:
            self._inbox.end(str(error))
        except Unavailable as error:
            log.debug("answer had no effect", queue=self._queue, error=str(error))

    async def _consume(self, link: Link) -> None:
        self._channel = await link.connection.channel(publisher_confirms=False)
        self._channel.close_callbacks.add(self._end_with_connection)
        await self._channel.set_qos(prefetch_count=self._prefetch)
        channel = await self._channel.get_underlay_channel()
        channel.on_consumer_cancel_callbacks.add(self._end_with_queue)
        queue = await self._channel.get_queue(self._queue, ensure=False)
        await queue.consume(self._receive, consumer_tag=self._name)

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        if not self._inbox.ended:
            self._inbox.put(message)
            return
        async with self.answer():
            await message.nack(requeue=True)

    def _end_with_connection(self, channel: AbstractChannel | None, error: BaseException | None) -> None:
        self._inbox.end(f"RabbitMQ: the connection of {self._name} is gone: {error}")

    def _end_with_queue(self, frame: object) -> None:
        self._inbox.end(f"RabbitMQ cancelled {self._name}: the queue {self._queue} is gone")

    async def _leave(self) -> None:
        """Close the channel, so that unanswered messages go back. If it does not close, close the connection."""
        self._inbox.end()
        if self._channel is None or self._channel.is_closed:
            return
        try:
            async with answer_within(f"unsubscribe from {self._queue}", CLOSE_SECONDS):
                await self._channel.close()
        except Unavailable:
            self._line.retire(self._link)


# No exchange has such a name: AMQP's are valid UTF-8 without control characters.
_ALONE = "\x00alone"


class QueueDeliverer:
    """Sends messages over its own connection and waits for the confirms, at most `timeout_seconds`."""

    def __init__(self, line: Line, timeout_seconds: float) -> None:
        self._line = line
        self._timeout = timeout_seconds
        self._alone = asyncio.Lock()

    async def deliver(self, messages: Sequence[QueueMessage]) -> list[DeliveryError | None]:
        groups = _by_exchange(messages)
        reason = Unavailable("RabbitMQ: deliver: no answer")
        try:
            async with self._line.ask("deliver", self._timeout) as link:
                await asyncio.gather(*(self._send(link, exchange, group) for exchange, (group, _) in groups.items()))
        except Unavailable as error:
            reason = error
        outcomes: list[DeliveryError | None] = [None] * len(messages)
        for group, places in groups.values():
            group.settle_rest(reason)
            for place, outcome in zip(places, group.outcomes, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def close(self) -> None:
        await self._line.close()

    async def _send(self, link: Link, exchange: str, group: ConfirmGroup) -> None:
        """Send the group; send a message again, alone, if another message closed its channel."""
        await _through(link, exchange, group)
        for index, outcome in enumerate(group.outcomes):
            if isinstance(outcome, Entangled):
                async with self._alone:
                    alone = ConfirmGroup([group.messages[index]])
                    await _through(link, _ALONE, alone)
                group.outcomes[index] = alone.outcomes[0]


async def _through(link: Link, name: str, group: ConfirmGroup) -> None:
    try:
        channel = await link.open_confirmed(name)
    except Unavailable as error:
        group.settle_rest(error)
    else:
        await channel.deliver(group)


def _by_exchange(messages: Sequence[QueueMessage]) -> dict[str, tuple[ConfirmGroup, list[int]]]:
    """A group per exchange, and the indexes of its messages among all."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, message in enumerate(messages):
        places[message.exchange].append(place)
    return {exchange: (ConfirmGroup([messages[place] for place in here]), here) for exchange, here in places.items()}
