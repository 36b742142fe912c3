"""Callbacks of a user's schedule, the messages that they send, and the task of a callback that a worker does.

A payload is any JSON, stored and sent as the text that came in. The payload of a job is the body of `POST` of a job.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import ClassVar
from urllib.parse import urlsplit

from msgspec import Struct

from shared.core.errors import CarillonError, Invalid, Unavailable
from shared.core.tasks import TASK_PREFIXES, Task

PAYLOAD_BYTES = 256 * 1024
HEADERS = 50
HEADER_BYTES = 8 * 1024
NAME_BYTES = 255
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_RESERVED = (*TASK_PREFIXES, "amq.")


class RabbitCallback(Struct, frozen=True, kw_only=True, tag="rabbitmq"):
    """Publish to a queue (by the default exchange), or to an exchange of the deployment's list with a routing key."""

    payload: str
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    headers: dict[str, str] = {}


class HttpCallback(Struct, frozen=True, kw_only=True, tag="http"):
    """Call a URL; any 2xx is success. `secret` signs the call as in Standard Webhooks (`whsec_…`)."""

    payload: str
    url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    secret: str = ""


class KafkaCallback(Struct, frozen=True, kw_only=True, tag="kafka"):
    """Append to a topic of the deployment's list; success after all in-sync replicas have it."""

    payload: str
    topic: str
    key: str | None = None
    headers: dict[str, str] = {}


class Overlap(StrEnum):
    """The rule for an occurrence that is due while the job of an earlier one is open."""

    SKIP = "skip"
    QUEUE = "queue"  # it waits until that job has ended
    ALLOW = "allow"  # both run


class JobCallback(Struct, frozen=True, kw_only=True, tag="job"):
    """Start a job of an app from these templates. The job expires after `expires_after_seconds`; 0: it does not."""

    payload: str
    app_id: str
    template: str
    overlap: Overlap = Overlap.SKIP
    expires_after_seconds: float = 0.0


Callback = RabbitCallback | HttpCallback | KafkaCallback | JobCallback
ByWorker = HttpCallback | JobCallback
"""Callbacks that schedulers hand over to workers."""


class Targets(Struct, frozen=True, kw_only=True):
    """The permitted targets of callbacks. `queues` and `streams`: whether the deployment has such servers. `check_url`
    raises `Invalid`, with the name of the field, for a URL that must not be called."""

    queues: bool = True
    streams: bool = True
    exchanges: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    check_url: Callable[..., None]


def host_of(callback: Callback) -> str:
    """The host that is called; `""` if none is."""
    return (urlsplit(callback.url).hostname or "") if isinstance(callback, HttpCallback) else ""


def check_queue_target(callback: RabbitCallback, targets: Targets, *, field: str) -> None:
    """Raise `Invalid` if the message may not or cannot go there; `field` is the place of the callback's data."""
    if not targets.queues:
        raise Invalid("there is no RabbitMQ in embedded mode: use an http callback", field=f"{field}.type")
    if bool(callback.queue) == bool(callback.exchange):
        raise Invalid("either queue, or exchange with routing_key, must be given", field=f"{field}.data.queue")
    if callback.queue:
        check_name(callback.queue, field=f"{field}.data.queue")
        if callback.queue.casefold().startswith(_RESERVED):
            rule = f"this queue is not open to callbacks: {', '.join(f'{each}*' for each in _RESERVED)} are reserved"
            raise Invalid(rule, field=f"{field}.data.queue", value=callback.queue)
    else:
        check_name(callback.exchange, field=f"{field}.data.exchange")
        check_name(callback.routing_key, field=f"{field}.data.routing_key", empty=True)
        if callback.exchange not in targets.exchanges:
            reason = "this exchange is not in the deployment's list (callbacks.exchanges)"
            raise Invalid(reason, field=f"{field}.data.exchange", value=callback.exchange)


def check_topic_target(callback: KafkaCallback, targets: Targets, *, field: str) -> None:
    if not targets.streams:
        raise Invalid("there is no Kafka in embedded mode: use an http callback", field=f"{field}.type")
    if TOPIC.fullmatch(callback.topic) is None or callback.topic not in targets.topics:
        reason = "this topic is not in the deployment's list (callbacks.topics)"
        raise Invalid(reason, field=f"{field}.data.topic", value=callback.topic)


def check_name(name: str, *, field: str, empty: bool = False) -> None:
    """Raise `Invalid` unless this can be the name of a queue or an exchange, or a routing key: 1 to 255 bytes, all
    printable."""
    if (name or not empty) and (not name.isprintable() or not 1 <= len(name.encode()) <= NAME_BYTES):
        raise Invalid(f"1 to {NAME_BYTES} bytes of printable characters are needed", field=field, value=name)


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


DeliveryError = Undeliverable | Unavailable
"""The error of one message that was not delivered, or may not have been."""
CALL_QUEUE = "sched.call"


class CallTarget(Task, frozen=True, tag="call"):
    """Make the HTTP call of an occurrence, or start its job, if it still has this token. The occurrence counts the
    tries.

    Its `namespace` and `host` decide its turn. Tasks without these share their turns.
    """

    queue: ClassVar[str] = CALL_QUEUE
    occurrence_id: str
    token: str
    namespace: str = ""
    host: str = ""

    @property
    def about(self) -> str:
        return self.occurrence_id
