"""The callback of a schedule on the wire: read with the checks that a deployment makes of its targets, and shown again
without its secret."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Annotated, assert_never

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from services.api.http.wire import hide_path
from shared.accounts.rules.secrets import PREFIX
from shared.clock.rules.callbacks import (
    HEADER_BYTES,
    HEADERS,
    NAME_BYTES,
    PAYLOAD_BYTES,
    Callback,
    HttpCallback,
    KafkaCallback,
    RabbitCallback,
    Targets,
    check_queue_target,
    check_topic_target,
)
from shared.core.errors import Invalid
from shared.core.plain_words import JSON_DEPTH, is_deeper
from shared.drivers.http.checks import check_headers, check_method
from shared.drivers.http.signing import check_secret

FIELD = "callback"
KEY_BYTES = 4_096
HIDDEN = f"{PREFIX}***"

_PAYLOAD = f"{FIELD}.data.payload"
_exact = msgspec.json.Decoder(float_hook=Decimal)
_OUR_HEADERS = "carillon-"
# RabbitMQ would send a copy to whatever queue these name, and closes the channel where they name none.
_ROUTING_HEADERS = frozenset({"cc", "bcc"})


class RabbitData(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Either `queue`, or `exchange` with `routing_key`. Done when the broker has confirmed the message."""

    payload: Raw
    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    headers: dict[str, str] | None = None


class HttpData(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call, done when it is answered with 2xx. With a `secret` (`whsec_…`) it is signed by Standard Webhooks."""

    url: str
    method: str = "POST"
    headers: dict[str, str] | None = None
    payload: Raw | UnsetType = UNSET
    secret: str | None = None


class KafkaData(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A record. Done when all replicas in sync have it."""

    payload: Raw
    topic: str
    key: str | None = None
    headers: dict[str, str] | None = None


class RabbitCallbackBody(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="rabbitmq"):
    """A message to RabbitMQ."""

    data: RabbitData


class HttpCallbackBody(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="http"):
    """An HTTP call."""

    data: HttpData


class KafkaCallbackBody(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="kafka"):
    """A record for Kafka."""

    data: KafkaData


CallbackBody = Annotated[
    RabbitCallbackBody | HttpCallbackBody | KafkaCallbackBody,
    Meta(title="Callback", description="The call or message at each instant."),
]


def read_callback(body: CallbackBody, targets: Targets) -> Callback:
    match body:
        case RabbitCallbackBody(data):
            return _rabbit(data, targets)
        case HttpCallbackBody(data):
            return _http(data, targets)
        case KafkaCallbackBody(data):
            return _kafka(data, targets)
        case _:
            assert_never(body)


def callback_view(callback: Callback) -> CallbackBody:
    """A callback as it is shown: as it was asked for, but for its secret."""
    payload = Raw(callback.payload.encode())
    match callback:
        case RabbitCallback():
            return RabbitCallbackBody(
                RabbitData(
                    payload=payload,
                    queue=callback.queue or None,
                    exchange=callback.exchange or None,
                    routing_key=callback.routing_key or None,
                    headers=callback.headers or None,
                )
            )
        case HttpCallback():
            return HttpCallbackBody(
                HttpData(
                    url=callback.url,
                    method=callback.method,
                    headers=callback.headers,
                    payload=payload if callback.payload else UNSET,
                    secret=HIDDEN if callback.secret else None,
                )
            )
        case KafkaCallback():
            return KafkaCallbackBody(
                KafkaData(payload=payload, topic=callback.topic, key=callback.key, headers=callback.headers or None)
            )
        case _:
            assert_never(callback)


def redact(callback: Callback) -> Callback:
    """The callback for a viewer: where it goes, without what it says, and without the path of a URL, which may hold a
    secret."""
    bare = replace(callback, payload="null", headers={})
    match bare:
        case HttpCallback():
            return replace(bare, url=hide_path(bare.url))
        case KafkaCallback():
            return replace(bare, key=None)
        case RabbitCallback():
            return replace(bare, routing_key="")
        case _:
            assert_never(bare)


def _rabbit(data: RabbitData, targets: Targets) -> RabbitCallback:
    callback = RabbitCallback(
        payload=_payload(data.payload),
        queue=data.queue or "",
        exchange=data.exchange or "",
        routing_key=data.routing_key or "",
        headers=data.headers or {},
    )
    check_queue_target(callback, targets, field=FIELD)
    if callback.queue and callback.routing_key:
        raise Invalid("routing_key goes with exchange", field=f"{FIELD}.data.routing_key", value=callback.routing_key)
    _check_message_headers(callback.headers)
    for name in callback.headers:
        if name.casefold() in _ROUTING_HEADERS:
            raise Invalid("this header would send the message elsewhere too", field=f"{FIELD}.data.headers.{name}")
    return callback


def _http(data: HttpData, targets: Targets) -> HttpCallback:
    headers = data.headers or {}
    targets.check_url(data.url, field=f"{FIELD}.data.url")
    check_method(data.method, f"{FIELD}.data.method")
    check_headers(headers, f"{FIELD}.data.headers")
    if data.secret is not None:
        check_secret(data.secret, f"{FIELD}.data.secret")
    return HttpCallback(
        payload="" if data.payload is UNSET else _payload(data.payload),
        url=data.url,
        method=data.method,
        headers=headers,
        secret=data.secret or "",
    )


def _kafka(data: KafkaData, targets: Targets) -> KafkaCallback:
    callback = KafkaCallback(payload=_payload(data.payload), topic=data.topic, key=data.key, headers=data.headers or {})
    check_topic_target(callback, targets, field=FIELD)
    if data.key is not None and len(data.key.encode()) > KEY_BYTES:
        raise Invalid(f"a record's key has at most {KEY_BYTES:,} bytes", field=f"{FIELD}.data.key")
    _check_message_headers(callback.headers)
    return callback


def _payload(raw: Raw) -> str:
    """The text as it came. The decoder has checked that it is JSON and that the body is UTF-8."""
    text = bytes(raw)
    if len(text) > PAYLOAD_BYTES:
        raise Invalid(f"a payload has at most {PAYLOAD_BYTES // 1024} KiB", field=_PAYLOAD)
    if is_deeper(text, JSON_DEPTH):
        raise Invalid(f"a payload is nested at most {JSON_DEPTH} deep", field=_PAYLOAD)
    try:
        _exact.decode(text)
    except (msgspec.DecodeError, InvalidOperation):
        rule = "a payload's number has at most 4,300 digits, and an exponent of at most 17 digits: send a string"
        raise Invalid(rule, field=_PAYLOAD) from None
    return text.decode()


def _check_message_headers(headers: Mapping[str, str]) -> None:
    field = f"{FIELD}.data.headers"
    if len(headers) > HEADERS:
        raise Invalid(f"at most {HEADERS} headers", field=field)
    if sum(len(name.encode()) + len(value.encode()) for name, value in headers.items()) > HEADER_BYTES:
        raise Invalid(f"at most {HEADER_BYTES:,} bytes of headers", field=field)
    for name in headers:
        if not (name.isprintable() and 1 <= len(name.encode()) <= NAME_BYTES):
            raise Invalid(f"a header's name has 1 to {NAME_BYTES} bytes, all printable", field=field, value=name)
        if name.casefold().startswith(_OUR_HEADERS):
            raise Invalid(f"headers that begin with {_OUR_HEADERS} are Carillon's", field=f"{field}.{name}")
