"""Users' messages, as a callback sends them, and what became of each."""

from msgspec import Struct

from shared.domain.errors import CarillonError, Unavailable

Header = str | int | float | bool


class QueueMessage(Struct, frozen=True):
    """A message for RabbitMQ. `exchange` "" is the default exchange, where the routing key is a queue's name."""

    exchange: str
    routing_key: str
    body: bytes
    message_id: str
    headers: dict[str, Header]
    content_type: str = "application/json"


class TopicMessage(Struct, frozen=True):
    """A record for Kafka; the same key always goes to the same partition, no key to any."""

    topic: str
    key: str | None
    body: bytes
    headers: dict[str, str]


class Undeliverable(CarillonError):
    """The target answered, and refused: there is no such queue, exchange or topic, a negative confirm, not allowed,
    too large. It counts as an attempt.

    `Unavailable` in its place means that no answer came: the message may have arrived or not, and nothing is counted.
    """


Outcome = Undeliverable | Unavailable | None
"""The outcome of one message: `None` for delivered, or why not."""
