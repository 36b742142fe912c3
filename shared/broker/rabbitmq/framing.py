"""A message as AMQP 0-9-1 frames: publish, header, body.

The driver's general encoder takes eight times as long (26 µs per message against 3). A message that cannot be sent is
refused here, because a frame that breaks the protocol would close the connection of all messages.
"""

from functools import lru_cache
from struct import Struct

from shared.domain.clock.deliveries import Header, QueueMessage, Undeliverable

_FRAME = Struct(">BHI")
_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"
_ENVELOPE_BYTES = 8
_BASIC_PUBLISH = b"\x00\x3c\x00\x28\x00\x00"
_MANDATORY = b"\x01"
# Class, weight, size of the body, and the properties that follow: content type, headers, delivery mode, message id.
_CONTENT = Struct(">HHQH")
_BASIC, _PROPERTIES = 60, 0xB080
_PERSISTENT = b"\x02"
_LENGTH, _INTEGER, _NUMBER = Struct(">I"), Struct(">cq"), Struct(">cd")
# RabbitMQ also routes a message to every queue that these headers name.
_ROUTING_HEADERS = frozenset({"CC", "BCC"})


def frames(message: QueueMessage, channel: int, frame_max: int) -> list[bytes]:
    """The bytes to write, in pieces that follow each other. Raises `Undeliverable`."""
    try:
        header = _content_header(message)
        if len(header) + _ENVELOPE_BYTES > frame_max:
            raise Undeliverable(f"the headers are larger than {frame_max} bytes, which is all that RabbitMQ takes")
        pieces = [
            _publish(channel, message.exchange, message.routing_key),
            _FRAME.pack(_HEADER, channel, len(header)),
            header,
            _END,
        ]
    except UnicodeEncodeError as error:
        raise Undeliverable(f"not valid Unicode: {error}") from error
    body, room = message.body, frame_max - _ENVELOPE_BYTES
    for start in range(0, len(body), room):
        part = body[start : start + room]
        pieces += (_FRAME.pack(_BODY, channel, len(part)), part, _END)
    return pieces


@lru_cache(maxsize=1_000)
def _publish(channel: int, exchange: str, routing_key: str) -> bytes:
    method = _BASIC_PUBLISH + _short(exchange, "exchange") + _short(routing_key, "routing key") + _MANDATORY
    return _FRAME.pack(_METHOD, channel, len(method)) + method + _END


def _content_header(message: QueueMessage) -> bytes:
    table = b"".join([_field(name, value) for name, value in message.headers.items()])
    return b"".join(
        (
            _CONTENT.pack(_BASIC, 0, len(message.body), _PROPERTIES),
            _short(message.content_type, "content type"),
            _LENGTH.pack(len(table)),
            table,
            _PERSISTENT,
            _short(message.message_id, "message id"),
        )
    )


def _field(name: str, value: Header) -> bytes:
    if name in _ROUTING_HEADERS:
        raise Undeliverable(f"header {name} is RabbitMQ's own")
    return _short(name, "header name") + _value(name, value)


def _value(name: str, value: Header) -> bytes:
    match value:
        case str():
            text = value.encode()
            return b"S" + _LENGTH.pack(len(text)) + text
        case bool():
            return b"t\x01" if value else b"t\x00"
        case int():
            if not -(2**63) <= value < 2**63:
                raise Undeliverable(f"header {name} is beyond 64 bits")
            return _INTEGER.pack(b"l", value)
        case float():
            return _NUMBER.pack(b"d", value)


def _short(text: str, what: str) -> bytes:
    data = text.encode()
    if len(data) > 255:
        raise Undeliverable(f"the {what} is longer than 255 bytes: {text[:40]}...")
    return bytes((len(data),)) + data
