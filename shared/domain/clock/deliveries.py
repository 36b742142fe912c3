"""Users' messages of callbacks, and their outcomes."""

from msgspec import Struct

from shared.domain.errors import CarillonError, Unavailable

Header = str | int | float | bool


class QueueMessage(Struct, frozen=True):
    """A message for RabbitMQ. `exchange` "" is the default exchange, which uses a queue's name as the routing key."""

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
    """The target answered, and refused: no such queue, exchange or topic, a negative confirm, no permission, or too
    large. It counts as an attempt.

    `Unavailable` instead means that no answer came: the message may have arrived or not, and no attempt is counted.
    """


Outcome = Undeliverable | Unavailable | None
"""The outcome of one message: `None` for delivered, or the error."""
