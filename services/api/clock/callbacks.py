"""The callback of a schedule, read with the checks that a deployment makes of its targets, and shown without its
secret."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import assert_never

import msgspec
from msgspec import UNSET, Raw

from carillon.wire import clock as wire
from services.api.http.bodies import hide_path
from shared.accounts.rules.secrets import PREFIX
from shared.clock.rules.callbacks import (
    HEADER_BYTES,
    HEADERS,
    NAME_BYTES,
    PAYLOAD_BYTES,
    Callback,
    HttpCallback,
    JobCallback,
    KafkaCallback,
    Overlap,
    RabbitCallback,
    Targets,
    check_queue_target,
    check_topic_target,
)
from shared.core.errors import Invalid
from shared.core.ids import read_uuid
from shared.core.plain_words import JSON_DEPTH, is_deeper
from shared.drivers.http.checks import check_headers, check_method
from shared.drivers.http.signing import check_secret

_FIELD = "callback"
_KEY_BYTES = 4_096
_HIDDEN = f"{PREFIX}***"
_PAYLOAD = f"{_FIELD}.data.payload"
_exact = msgspec.json.Decoder(float_hook=Decimal)
_OUR_HEADERS = "carillon-"
# RabbitMQ would also send a copy to the queues that these name; if they name none, it closes the channel.
_ROUTING_HEADERS = frozenset({"cc", "bcc"})


def read_callback(body: wire.CallbackBody[Raw], targets: Targets) -> Callback:
    match body:
        case wire.RabbitBody(data):
            return _rabbit(data, targets)
        case wire.HttpBody(data):
            return _http(data, targets)
        case wire.KafkaBody(data):
            return _kafka(data, targets)
        case wire.JobStartBody(data):
            return _job(data)
        case _:
            assert_never(body)


def show_callback(callback: Callback, *, personal: bool) -> wire.CallbackBody[Raw]:
    """The callback without its secret. Unless `personal`, it has only its target, without the path of a URL, which may
    be secret."""
    payload = Raw(callback.payload.encode() if personal else b"null")
    match callback:
        case RabbitCallback():
            return wire.RabbitBody(_show_rabbit(callback, payload, personal=personal))
        case HttpCallback():
            return wire.HttpBody(_show_http(callback, payload, personal=personal))
        case KafkaCallback():
            return wire.KafkaBody(_show_kafka(callback, payload, personal=personal))
        case JobCallback():
            return wire.JobStartBody(_show_job(callback, payload))
        case _:
            assert_never(callback)


def _show_rabbit(callback: RabbitCallback, payload: Raw, *, personal: bool) -> wire.RabbitCallback[Raw]:
    return wire.RabbitCallback(
        payload=payload,
        queue=callback.queue or None,
        exchange=callback.exchange or None,
        routing_key=(callback.routing_key or None) if personal else None,
        headers=(callback.headers or None) if personal else None,
    )


def _show_http(callback: HttpCallback, payload: Raw, *, personal: bool) -> wire.HttpCallback[Raw]:
    return wire.HttpCallback(
        url=callback.url if personal else hide_path(callback.url),
        method=callback.method,
        headers=callback.headers if personal else {},
        payload=payload if callback.payload or not personal else UNSET,
        secret=_HIDDEN if callback.secret else None,
    )


def _show_kafka(callback: KafkaCallback, payload: Raw, *, personal: bool) -> wire.KafkaCallback[Raw]:
    return wire.KafkaCallback(
        payload=payload,
        topic=callback.topic,
        key=callback.key if personal else None,
        headers=(callback.headers or None) if personal else None,
    )


def _show_job(callback: JobCallback, payload: Raw) -> wire.JobCallback[Raw]:
    return wire.JobCallback(
        app_id=callback.app_id,
        template=callback.template,
        payload=payload,
        overlap=callback.overlap,
        expires_after_seconds=callback.expires_after_seconds or None,
    )


def _rabbit(data: wire.RabbitCallback[Raw], targets: Targets) -> RabbitCallback:
    callback = RabbitCallback(
        payload=_payload(data.payload),
        queue=data.queue or "",
        exchange=data.exchange or "",
        routing_key=data.routing_key or "",
        headers=dict(data.headers or {}),
    )
    check_queue_target(callback, targets, field=_FIELD)
    if callback.queue and callback.routing_key:
        raise Invalid("routing_key goes with exchange", field=f"{_FIELD}.data.routing_key", value=callback.routing_key)
    _check_message_headers(callback.headers)
    for name in callback.headers:
        if name.casefold() in _ROUTING_HEADERS:
            raise Invalid("this header would send the message elsewhere too", field=f"{_FIELD}.data.headers.{name}")
    return callback


def _http(data: wire.HttpCallback[Raw], targets: Targets) -> HttpCallback:
    headers = dict(data.headers or {})
    targets.check_url(data.url, field=f"{_FIELD}.data.url")
    check_method(data.method, f"{_FIELD}.data.method")
    check_headers(headers, f"{_FIELD}.data.headers")
    if data.secret is not None:
        check_secret(data.secret, f"{_FIELD}.data.secret")
    return HttpCallback(
        payload="" if data.payload is UNSET else _payload(data.payload),
        url=data.url,
        method=data.method,
        headers=headers,
        secret=data.secret or "",
    )


def _kafka(data: wire.KafkaCallback[Raw], targets: Targets) -> KafkaCallback:
    callback = KafkaCallback(
        payload=_payload(data.payload), topic=data.topic, key=data.key, headers=dict(data.headers or {})
    )
    check_topic_target(callback, targets, field=_FIELD)
    if data.key is not None and len(data.key.encode()) > _KEY_BYTES:
        raise Invalid(f"a record's key has at most {_KEY_BYTES:,} bytes", field=f"{_FIELD}.data.key")
    _check_message_headers(callback.headers)
    return callback


def _job(data: wire.JobCallback[Raw]) -> JobCallback:
    """Check the form only. `ScheduleLimits` checks the app, the rights and the body."""
    return JobCallback(
        payload=_payload(data.payload),
        app_id=read_uuid(data.app_id, field=f"{_FIELD}.data.app_id"),
        template=data.template,
        overlap=Overlap(data.overlap),
        expires_after_seconds=data.expires_after_seconds or 0.0,
    )


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
    field = f"{_FIELD}.data.headers"
    if len(headers) > HEADERS:
        raise Invalid(f"at most {HEADERS} headers", field=field)
    if sum(len(name.encode()) + len(value.encode()) for name, value in headers.items()) > HEADER_BYTES:
        raise Invalid(f"at most {HEADER_BYTES:,} bytes of headers", field=field)
    for name in headers:
        if not (name.isprintable() and 1 <= len(name.encode()) <= NAME_BYTES):
            raise Invalid(f"a header's name has 1 to {NAME_BYTES} bytes, all printable", field=field, value=name)
        if name.casefold().startswith(_OUR_HEADERS):
            raise Invalid(f"headers that begin with {_OUR_HEADERS} are Carillon's", field=f"{field}.{name}")
