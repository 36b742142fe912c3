"""Queues of tasks, as the broker tells of them."""

from msgspec import Struct


class QueueState(Struct, frozen=True, kw_only=True):
    """A queue of tasks: how many messages wait, and how many are in consumers' hands; how many come and go a second, as
    far as that is known."""

    name: str
    ready: int
    unacked: int
    consumers: int
    publish_rate: float = 0.0
    deliver_rate: float = 0.0
