"""The broker carries tasks to workers: MongoDB can queue all of them again. And it delivers users' messages, as the
callbacks of their schedules, apart from the tasks.

Guarantees of every implementation:

- `publish` returns when the broker has the message safely (a confirm); a queue that does not exist is an error, never a
  silent loss. When it raises `Unavailable`, the message may or may not have arrived.
- A delivery stays with its subscription until it is acknowledged, rejected or requeued. If the subscription ends
  first, it is delivered again, to anybody.
- At most `prefetch` deliveries of a subscription are unanswered at a time.
- `deliver` tells of each message what became of it, and none of them changes what becomes of another. `None` is a
  confirm: a queue has it, durably if the queue is durable.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from shared.domain.clock.deliveries import Outcome, QueueMessage
from shared.domain.console.queues import QueueState


class Delivery(Protocol):
    """One message in one consumer's hands; exactly one of the two answers ends it.

    An answer whose connection is gone does nothing: the broker has taken the message back already.
    """

    body: bytes
    redelivered: bool
    waited_seconds: float | None
    """From its publishing to its first delivery; `None` for one that comes again, or that an earlier release sent."""

    async def ack(self) -> None:
        """The work is done, or cannot be done: forget the message."""

    async def requeue(self) -> None:
        """The work cannot be done now: put the message back into the queue."""


class Subscription(Protocol):
    """A consumer's stream of deliveries; an async context manager that cancels the consumer when left.

    Iterating raises `Unavailable` when the connection or the consumer is gone; subscribe again then. `stop` ends the
    iteration while deliveries in hand can still be answered.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Delivery: ...

    async def stop(self) -> None:
        """Take no more; what was delivered but not iterated goes back to the queue."""


class Broker(Protocol):
    """Queues with confirms and subscriptions."""

    delivers: bool
    """Whether users have queues here at all; where they have none, every message is `Undeliverable`."""

    async def setup(self, queues: tuple[str, ...]) -> None:
        """Make the queues and their policies, idempotently (`carillon init`)."""

    async def verify(self, queues: tuple[str, ...]) -> None:
        """Raise `Unavailable` unless `setup` has been done for these queues."""

    async def publish(self, queue: str, body: bytes) -> None:
        """Put a message into the queue and return when it is safe there. Raises `Unavailable`."""

    async def deliver(self, messages: Sequence[QueueMessage]) -> list[Outcome]:
        """Send users' messages, up to 1,000 in one call, and tell what became of each, in their order. Never raises.

        The deadline is one for all. A message that equals one that is on its way (target and message id) is
        `Unavailable`: the outcome of the first tells of both.
        """

    def subscribe(self, queue: str, *, name: str, prefetch: int) -> Subscription:
        """A consumer on the queue; `name` is the tag that the management UI shows."""

    async def depth(self, queue: str) -> int:
        """How many messages wait in the queue, those in consumers' hands not counted. Raises `Unavailable`."""

    async def list_queues(self) -> Sequence[QueueState]:
        """The queues of tasks that there are, by name; none where nobody can tell. RabbitMQ's figures are up to five
        seconds old, and it has none of a new queue yet.

        Raises:
            Unavailable: the broker's management does not answer.
        """

    async def purge(self, queue: str) -> None:
        """Drop what waits in the queue. Raises `Unavailable`."""

    async def ping(self) -> None:
        """Raise `Unavailable` when the broker does not answer."""

    async def close(self) -> None:
        """Close every connection."""
