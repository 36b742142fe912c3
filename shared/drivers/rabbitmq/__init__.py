"""The broker carries tasks to workers; if they are lost, MongoDB can queue all of them again. Apart from the tasks, it
delivers users' messages to their queues.

Guarantees of every implementation:

- `publish` returns when the broker has the message safely (a confirm). A missing queue is an error, never a silent
  loss. After `Unavailable`, the message may or may not have arrived.
- A delivery belongs to its subscription until it is acknowledged or requeued. If the subscription ends first, the
  broker delivers it again, to any subscription.
- At most `prefetch` deliveries of a subscription are unanswered at a time.
- `deliver` returns the outcome of each message; the outcome of one does not change another's. `None` is a confirm: a
  queue has the message, durably if the queue is durable.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from shared.clock.rules.callbacks import DeliveryError, QueueMessage
from shared.console.rules.processes import QueueState
from shared.core.errors import Unavailable


class Delivery(Protocol):
    """A message in a consumer's hands; `ack` or `requeue` ends it.

    After the connection is gone, an answer does nothing: the broker has already taken the message back.
    """

    body: bytes
    redelivered: bool
    waited_seconds: float | None
    """From publishing to the first delivery. `None` for a repeated delivery."""

    async def ack(self) -> None:
        """Forget the message: its work is done, or cannot be done."""

    async def requeue(self) -> None:
        """Put the message back into the queue: its work cannot be done now."""


class Subscription(Protocol):
    """A consumer's deliveries. Leaving this async context manager cancels the consumer.

    Iterating raises `Unavailable` after the connection or the consumer is gone; subscribe again then. `stop` ends the
    iteration, while deliveries in hand can still be answered.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Delivery: ...

    async def stop(self) -> None:
        """Take no more. Deliveries that were not iterated go back to the queue."""


class Broker(Protocol):
    delivers: bool
    """Whether users have queues here. If false, every message is `Undeliverable`."""

    async def setup(self, queues: tuple[str, ...]) -> None:
        """Make the queues and their policies (`carillon init`); it may be repeated."""

    async def verify(self, queues: tuple[str, ...]) -> None: ...

    async def publish(self, queue: str, body: bytes) -> None:
        """Return after the queue has the message safely."""

    async def deliver(self, messages: Sequence[QueueMessage]) -> list[DeliveryError | None]:
        """Send at most 1,000 messages of users, and return each one's outcome, in their order. Never raises.

        All messages share one deadline. A message with the target and id of one that is on its way is `Unavailable`:
        the outcome of the first covers both.
        """

    def subscribe(self, queue: str, *, name: str, prefetch: int) -> Subscription:
        """Open a consumer; `name` is the tag that the management UI shows."""

    async def depth(self, queue: str) -> int:
        """The number of messages that wait in the queue, without those in consumers' hands."""

    async def list_queues(self) -> Sequence[QueueState]:
        """The queues of tasks, by name; empty if no management API is configured. RabbitMQ's figures are up to five
        seconds old, and a new queue has none yet."""

    async def purge(self, queue: str) -> None: ...

    async def ping(self) -> None: ...

    async def close(self) -> None: ...


PUBLISHED = "x-published-ms"
"""The header with the time of publishing, by the publisher's clock, so that the wait can be measured."""


def published_now() -> int:
    return int(time.time() * 1000)


def wait_of(published: Any, *, redelivered: bool) -> float | None:
    """The seconds since publishing, at least 0 because clocks differ. `None` without the header, or for a repeated
    delivery."""
    if redelivered or not isinstance(published, int):
        return None
    return max(time.time() - published / 1000, 0.0)


T = TypeVar("T")


class Inbox(Generic[T]):
    """A consumer's messages in order, then an end: quiet (`StopAsyncIteration`) or with a reason (`Unavailable`).

    Any number of tasks may iterate: each message goes to one of them, the end to all.
    """

    def __init__(self) -> None:
        self._items: asyncio.Queue[T | None] = asyncio.Queue()
        self._reason: str | None = None
        self.ended = False

    def put(self, item: T) -> None:
        self._items.put_nowait(item)

    def end(self, reason: str | None = None) -> list[T]:
        """End the inbox; return the messages that were not iterated. A second call returns none."""
        if self.ended:
            return []
        self.ended, self._reason = True, reason
        left = [item for _ in range(self._items.qsize()) if (item := self._items.get_nowait()) is not None]
        self._items.put_nowait(None)
        return left

    async def take(self) -> T:
        """Return the next message. After the end, every call raises `StopAsyncIteration` or `Unavailable`."""
        item = await self._items.get()
        if item is not None:
            return item
        self._items.put_nowait(None)
        if self._reason is not None:
            raise Unavailable(self._reason)
        raise StopAsyncIteration
