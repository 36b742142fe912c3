"""Queues of tasks, as the broker reports them."""

from msgspec import Struct


class QueueState(Struct, frozen=True, kw_only=True):
    """A queue of tasks: waiting messages, messages in consumers' hands, and the messages that come and go each second,
    if known."""

    name: str
    ready: int
    unacked: int
    consumers: int
    publish_rate: float = 0.0
    deliver_rate: float = 0.0
