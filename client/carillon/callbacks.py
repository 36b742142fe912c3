"""The callback of an instant, as a request gives it and as an answer shows it."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType


class RabbitCallback(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to RabbitMQ: to `queue`, or to `exchange` with `routing_key`. The payload is any JSON."""

    payload: Any
    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    headers: Mapping[str, str] | None = None


class HttpCallback(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An HTTP call, done when it is answered with 2xx; signed by Standard Webhooks with a `secret` (`whsec_…`), which
    an answer does not show."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] | None = None
    payload: Any | UnsetType = UNSET
    secret: str | None = None


class KafkaCallback(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record for Kafka. The payload is any JSON."""

    payload: Any
    topic: str
    key: str | None = None
    headers: Mapping[str, str] | None = None


Callback = RabbitCallback | HttpCallback | KafkaCallback


class RabbitBody(Struct, frozen=True, tag_field="type", tag="rabbitmq"):
    """How it stands in a body."""

    data: RabbitCallback


class HttpBody(Struct, frozen=True, tag_field="type", tag="http"):
    """How it stands in a body."""

    data: HttpCallback


class KafkaBody(Struct, frozen=True, tag_field="type", tag="kafka"):
    """How it stands in a body."""

    data: KafkaCallback


CallbackBody = RabbitBody | HttpBody | KafkaBody


def body_of(callback: Callback) -> CallbackBody:
    """The callback as it stands in a body."""
    match callback:
        case RabbitCallback():
            return RabbitBody(callback)
        case HttpCallback():
            return HttpBody(callback)
        case KafkaCallback():
            return KafkaBody(callback)
