"""The broker in the memory of one process, for the embedded mode and for tests. After a restart, upkeep queues the
tasks again.

Queues have no limit: the feed publishes about one message per chain of each open job.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Self

from msgspec import Struct

from shared.clock.rules.callbacks import DeliveryError, QueueMessage, Undeliverable
from shared.console.rules.processes import QueueState
from shared.core.errors import Unavailable
from shared.drivers.rabbitmq import Inbox, published_now, wait_of


class MemoryBroker:
    """The guarantees of `Broker` for one event loop, without a server."""

    delivers = False

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._closed = False

    async def setup(self, queues: tuple[str, ...]) -> None:
        self._open()
        for name in queues:
            self._queues.setdefault(name, _Queue())

    async def verify(self, queues: tuple[str, ...]) -> None:
        for name in queues:
            self.queue(name)

    async def publish(self, queue: str, body: bytes) -> None:
        self.queue(queue).add(_Message(body, published_now()))
        # Without this pause, a caller that publishes in a loop would keep all consumers from running.
        await asyncio.sleep(0)

    async def deliver(self, messages: Sequence[QueueMessage]) -> list[DeliveryError | None]:
        return [Undeliverable("this deployment has no RabbitMQ") for _ in messages]

    def subscribe(self, queue: str, *, name: str, prefetch: int) -> "MemorySubscription":
        return MemorySubscription(self, queue, name, prefetch)

    async def depth(self, queue: str) -> int:
        return len(self.queue(queue).ready)

    async def list_queues(self) -> list[QueueState]:
        self._open()
        return [
            QueueState(
                name=name,
                ready=len(queue.ready),
                unacked=sum(consumer.in_hand for consumer in queue.consumers),
                consumers=len(queue.consumers),
            )
            for name, queue in sorted(self._queues.items())
        ]

    async def purge(self, queue: str) -> None:
        self.queue(queue).ready.clear()

    async def ping(self) -> None:
        self._open()

    async def close(self) -> None:
        self._closed = True
        for queue in self._queues.values():
            for consumer in list(queue.consumers):
                consumer.leave("the broker was closed")

    def _open(self) -> None:
        if self._closed:
            raise Unavailable("the broker was closed")

    def queue(self, name: str) -> "_Queue":
        self._open()
        if name not in self._queues:
            raise Unavailable(f"queue {name} does not exist: `carillon init` makes it")
        return self._queues[name]


class _Message(Struct):
    body: bytes
    published: int
    redelivered: bool = False


class _Queue:
    def __init__(self) -> None:
        self.ready: deque[_Message] = deque()
        self.consumers: deque[MemorySubscription] = deque()

    def add(self, message: _Message) -> None:
        self.ready.append(message)
        self.serve()

    def give_back(self, messages: list[_Message]) -> None:
        """Put these back at the head, in their order, as a quorum queue with a delivery limit does."""
        for message in reversed(messages):
            message.redelivered = True
            self.ready.appendleft(message)
        self.serve()

    def serve(self) -> None:
        while self.ready:
            consumer = next((consumer for consumer in self.consumers if consumer.has_room), None)
            if consumer is None:
                return
            self.consumers.remove(consumer)
            self.consumers.append(consumer)
            consumer.receive(self.ready.popleft())


class MemorySubscription:
    def __init__(self, broker: MemoryBroker, queue: str, name: str, prefetch: int) -> None:
        self.name = name
        self._broker = broker
        self._queue_name = queue
        self._prefetch = prefetch
        self._inbox: Inbox[MemoryDelivery] = Inbox()
        self._unanswered: dict[int, _Message] = {}
        self._queue: _Queue | None = None

    async def __aenter__(self) -> Self:
        self._queue = self._broker.queue(self._queue_name)
        self._queue.consumers.append(self)
        self._queue.serve()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "MemoryDelivery":
        return await self._inbox.take()

    async def stop(self) -> None:
        self._cancel()
        for delivery in reversed(self._inbox.end()):
            await delivery.requeue()

    @property
    def has_room(self) -> bool:
        return self.in_hand < self._prefetch

    @property
    def in_hand(self) -> int:
        return len(self._unanswered)

    def receive(self, message: _Message) -> None:
        self._unanswered[id(message)] = message
        self._inbox.put(MemoryDelivery(self, message))

    def leave(self, reason: str | None = None) -> None:
        """End the consumer; its unanswered messages go back to the queue."""
        self._cancel()
        self._inbox.end(reason)
        unanswered, self._unanswered = list(self._unanswered.values()), {}
        if self._queue is not None:
            self._queue.give_back(unanswered)

    def take_back(self, message: _Message) -> "_Queue | None":
        """Take an answered message from this consumer, which makes room for the next. Return the queue to act on, or
        `None` if the message was already taken."""
        if self._unanswered.pop(id(message), None) is None:
            return None
        return self._queue

    def _cancel(self) -> None:
        if self._queue is not None and self in self._queue.consumers:
            self._queue.consumers.remove(self)


class MemoryDelivery:
    def __init__(self, subscription: MemorySubscription, message: _Message) -> None:
        self.body = message.body
        self.redelivered = message.redelivered
        self.waited_seconds = wait_of(message.published, redelivered=message.redelivered)
        self._subscription = subscription
        self._message = message

    async def ack(self) -> None:
        if (queue := self._subscription.take_back(self._message)) is not None:
            queue.serve()

    async def requeue(self) -> None:
        if (queue := self._subscription.take_back(self._message)) is not None:
            queue.give_back([self._message])
