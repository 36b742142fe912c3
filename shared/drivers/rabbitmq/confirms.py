"""A channel for users' messages: many are in flight, and the broker's answers are matched to them.

It replaces one of aiormq's channels, directly under the connection: the connection hands it the received frames,
and takes the frames that it writes. aiormq's channel costs a task, two futures and a lock per message.

RabbitMQ confirms messages by their number on the channel, many at once. A message that no queue takes is first
returned and then confirmed. A returned message does not carry its number: it is matched by routing key and message
id. So a message that equals one in flight is refused as `Unavailable`.

A message becomes AMQP 0-9-1 frames: publish, header, body. The driver's general encoder takes eight times as long
(26 µs per message against 3). A message that cannot be sent is refused here, because a frame that breaks the
protocol would close the connection of all messages.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, cast

from aiormq import spec
from aiormq.abc import AbstractChannel, AbstractConnection, ChannelFrame
from pamqp.base import Frame
from pamqp.header import ContentHeader

from shared.clock.rules.callbacks import DeliveryError, Header, QueueMessage, Undeliverable
from shared.core.errors import Unavailable

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


_ACCESS_REFUSED, _NOT_FOUND = 403, 404
# Carillon may still use other routing keys of the exchange.
_ONE_TOPIC = re.compile(r"access to topic ")
_WRITE_BYTES = 64 * 1024
_UNDECIDED = Unavailable("RabbitMQ: deliver: no answer")
Key = tuple[str, str]


class Entangled(Unavailable):
    """The broker closed the channel because of one message, without saying which. Send each alone to find out."""


class ConfirmGroup:
    """Messages for one exchange that are sent together, and their outcomes."""

    def __init__(self, messages: Sequence[QueueMessage]) -> None:
        self.messages = messages
        self.outcomes: list[DeliveryError | None] = [_UNDECIDED] * len(messages)
        self.done = asyncio.get_running_loop().create_future()
        self.writing: asyncio.Task[None] | None = None
        self._left = len(messages)

    def settle(self, index: int, outcome: DeliveryError | None) -> None:
        """Set a message's outcome; only the first one counts."""
        if self.outcomes[index] is not _UNDECIDED:
            return
        self.outcomes[index] = outcome
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)

    def settle_rest(self, outcome: DeliveryError | None) -> None:
        for index in range(len(self.outcomes)):
            self.settle(index, outcome)


class ConfirmedChannel:
    """A channel for the messages to one exchange. It is `closed` for good at the first error."""

    def __init__(self, connection: AbstractConnection) -> None:
        self.closed = False
        self._connection = connection
        self._frame_max = connection.connection_tune.frame_max or 131_072
        self._number = next(number for number in range(1, 65_536) if number not in connection.channels)
        self._reply: asyncio.Future[Frame] | None = None
        self._groups: set[ConfirmGroup] = set()
        self._written = 0
        # A plain dictionary would step over all deleted entries at its head each time.
        self._in_flight: OrderedDict[int, tuple[ConfirmGroup, int, Key]] = OrderedDict()
        self._numbers: dict[Key, int] = {}
        self._returning: spec.Basic.Return | None = None
        self._returned: dict[int, Undeliverable] = {}
        # The connection puts the frames that it receives into `frames` of the channel with this number.
        self.frames = self
        connection.channels[self._number] = cast("AbstractChannel", self)
        self._closing = connection.closing
        self._closing.add_done_callback(self._end_with_connection)

    @property
    def idle(self) -> bool:
        return not self._groups and not self._in_flight

    async def open(self) -> None:
        await self._ask(spec.Channel.Open())
        await self._ask(spec.Confirm.Select())

    async def close(self) -> None:
        """End an idle channel. The connection forgets it when the broker agrees."""
        self.closed = True
        await self._write([spec.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0)])

    async def deliver(self, group: ConfirmGroup) -> None:
        """Return when every message of the group has an outcome. The caller sets the deadline."""
        if self.closed:
            group.settle_rest(Unavailable("RabbitMQ: the channel was closed"))
            return
        self._groups.add(group)
        group.writing = asyncio.create_task(self._publish(group, self._reserve_keys(group)))
        try:
            await group.done
        finally:
            group.writing.cancel()
            self._groups.discard(group)

    def _reserve_keys(self, group: ConfirmGroup) -> dict[int, Key]:
        """The key of each message that equals none in flight. The key belongs to the message from now on."""
        admitted: dict[int, Key] = {}
        for index, message in enumerate(group.messages):
            key = (message.routing_key, message.message_id)
            if key in self._numbers:
                group.settle(index, Unavailable("RabbitMQ: the same message is on its way already"))
            else:
                self._numbers[key] = 0
                admitted[index] = key
        return admitted

    async def _publish(self, group: ConfirmGroup, admitted: dict[int, Key]) -> None:
        pieces: list[bytes] = []
        size = 0
        held: list[tuple[int, Key]] = []
        try:
            for index, key in list(admitted.items()):
                try:
                    framed = frames(group.messages[index], self._number, self._frame_max)
                except Undeliverable as refused:
                    group.settle(index, refused)
                    continue
                pieces += framed
                size += len(group.messages[index].body) + 200
                held.append((index, key))
                if size > _WRITE_BYTES:
                    await self._send(group, pieces, held, admitted)
                    pieces, size, held = [], 0, []
            if held:
                await self._send(group, pieces, held, admitted)
        finally:
            for key in admitted.values():
                del self._numbers[key]

    async def _send(
        self, group: ConfirmGroup, pieces: Iterable[bytes], held: list[tuple[int, Key]], admitted: dict[int, Key]
    ) -> None:
        written = asyncio.get_running_loop().create_future()
        await self._connection.write_queue.put(ChannelFrame(b"".join(pieces), should_close=False, drain_future=written))
        # No await between the write queue and these lines, so the numbers are those that the broker counts.
        for index, key in held:
            self._written += 1
            self._in_flight[self._written] = (group, index, key)
            self._numbers[key] = self._written
            del admitted[index]
        await written

    async def put(self, received: tuple[int, Any]) -> None:
        match received[1]:
            case spec.Basic.Ack() as frame:
                self._apply_confirm(frame, None)
            case spec.Basic.Nack() as frame:
                self._apply_confirm(frame, Undeliverable("RabbitMQ refused the message: negative confirm"))
            case spec.Basic.Return() as frame:
                self._returning = frame
            case ContentHeader() as header:
                self._was_returned(header)
            case spec.Channel.Close() as frame:
                self._end_closed_channel(frame)
            case spec.Channel.OpenOk() | spec.Confirm.SelectOk() as frame:
                if self._reply is not None and not self._reply.done():
                    self._reply.set_result(frame)
            case spec.Channel.CloseOk():
                self._closing.cancel()
            case _:
                pass  # the body of a returned message

    def _apply_confirm(self, frame: spec.Basic.Ack | spec.Basic.Nack, outcome: Undeliverable | None) -> None:
        last = frame.delivery_tag or 0
        if not frame.multiple:
            self._settle_number(last, outcome)
            return
        # Messages in flight are in the order of their numbers; tag 0 means all of them.
        while self._in_flight and not 0 < last < (first := next(iter(self._in_flight))):
            self._settle_number(first, outcome)

    def _settle_number(self, number: int, outcome: Undeliverable | None) -> None:
        found = self._in_flight.pop(number, None)
        if found is not None:
            group, index, key = found
            del self._numbers[key]
            group.settle(index, self._returned.pop(number, outcome))

    def _was_returned(self, header: ContentHeader) -> None:
        frame, self._returning = self._returning, None
        if frame is None:
            return
        number = self._numbers.get((frame.routing_key or "", header.properties.message_id or ""))
        if number:
            target = f"exchange {frame.exchange} with routing key" if frame.exchange else "the name"
            self._returned[number] = Undeliverable(f"no queue is bound to {target} {frame.routing_key}")

    def _end_closed_channel(self, frame: spec.Channel.Close) -> None:
        """Settle the messages in flight. Those written after the refused one never arrived."""
        reason = f"RabbitMQ: {frame.reply_text}"
        whole_exchange = frame.reply_code in (_ACCESS_REFUSED, _NOT_FOUND) and not _ONE_TOPIC.search(reason)
        one = len(self._in_flight) == 1
        for group, index, _ in self._in_flight.values():
            group.settle(index, Undeliverable(reason) if whole_exchange or one else Entangled(reason))
        self._end(Undeliverable(reason) if whole_exchange else Entangled(reason))
        # The number is free after the agreement is sent; until then no channel may open with it.
        self._connection.channels[self._number] = cast("AbstractChannel", self)
        agreement = asyncio.create_task(self._write([spec.Channel.CloseOk()]))
        self._closing.add_done_callback(lambda _: agreement.cancel())
        agreement.add_done_callback(self._forget)

    def _forget(self, _: asyncio.Task[None]) -> None:
        self._connection.channels.pop(self._number, None)
        self._closing.cancel()

    def _end_with_connection(self, closing: asyncio.Future[Any]) -> None:
        reason = None if closing.cancelled() else closing.exception()
        self._end(Unavailable(f"RabbitMQ: the connection is gone: {reason!r}"))

    def _end(self, outcome: Undeliverable | Unavailable) -> None:
        self.closed = True
        for group in self._groups:
            # Cancel now, not when the caller wakes up: nothing may be written to a closed channel.
            if group.writing is not None:
                group.writing.cancel()
            group.settle_rest(outcome)
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(Unavailable(str(outcome)))
        self._in_flight.clear()
        self._returned.clear()

    async def _ask(self, frame: Frame) -> None:
        self._reply = asyncio.get_running_loop().create_future()
        await self._write([frame])
        await self._reply

    async def _write(self, sent: list[Frame]) -> None:
        await self._connection.write_queue.put(ChannelFrame.marshall(self._number, sent))
