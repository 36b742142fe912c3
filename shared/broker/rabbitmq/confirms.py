"""Users' messages on one channel: many in flight, and what the broker says of each.

It stands in the place of one of aiormq's channels, directly below the connection: that one hands it the received
frames, and takes what it writes. aiormq's own channel costs a task, two futures and a lock for each message.

RabbitMQ confirms messages by their number on the channel, many at once; a message that no queue takes is returned
first, and then confirmed. A returned message does not carry its number. It is known by routing key and message id, so
a message that equals one in flight has to wait: it is `Unavailable`.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, cast

from aiormq import spec
from aiormq.abc import AbstractChannel, AbstractConnection, ChannelFrame
from pamqp.base import Frame
from pamqp.header import ContentHeader

from shared.broker.rabbitmq.framing import frames
from shared.domain.clock.deliveries import Outcome, QueueMessage, Undeliverable
from shared.domain.errors import Unavailable

_ACCESS_REFUSED, _NOT_FOUND = 403, 404
# Other routing keys of the exchange may be open to us.
_ONE_TOPIC = re.compile(r"access to topic ")
_WRITE_BYTES = 64 * 1024
_UNDECIDED = Unavailable("RabbitMQ: deliver: no answer")

Key = tuple[str, str]


class Entangled(Unavailable):
    """The broker closed the channel because of one message, and does not say which. Sent alone, each will tell."""


class ConfirmGroup:
    """Messages that go together, all for one exchange, and their outcomes."""

    def __init__(self, messages: Sequence[QueueMessage]) -> None:
        self.messages = messages
        self.outcomes: list[Outcome] = [_UNDECIDED] * len(messages)
        self.done = asyncio.get_running_loop().create_future()
        self.writing: asyncio.Task[None] | None = None
        self._left = len(messages)

    def settle(self, index: int, outcome: Outcome) -> None:
        """Give a message its outcome; only the first one counts."""
        if self.outcomes[index] is not _UNDECIDED:
            return
        self.outcomes[index] = outcome
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)

    def settle_rest(self, outcome: Outcome) -> None:
        for index in self.undecided_messages():
            self.settle(index, outcome)

    def undecided_messages(self) -> list[int]:
        return [index for index, outcome in enumerate(self.outcomes) if outcome is _UNDECIDED]


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
        # A plain dictionary would step over all that were taken from its head, every time.
        self._in_flight: OrderedDict[int, tuple[ConfirmGroup, int, Key]] = OrderedDict()
        self._numbers: dict[Key, int] = {}
        self._returning: spec.Basic.Return | None = None
        self._returned: dict[int, Undeliverable] = {}
        # The connection puts what it receives into `frames` of the channel with this number.
        self.frames = self
        connection.channels[self._number] = cast("AbstractChannel", self)
        self._closing = connection.closing
        self._closing.add_done_callback(self._end_with_connection)

    @property
    def idle(self) -> bool:
        return not self._groups and not self._in_flight

    async def open(self) -> None:
        """Open the channel. Raises `Unavailable`."""
        await self._ask(spec.Channel.Open())
        await self._ask(spec.Confirm.Select())

    async def close(self) -> None:
        """End an idle channel; the connection forgets it when the broker agrees."""
        self.closed = True
        await self._write([spec.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0)])

    async def deliver(self, group: ConfirmGroup) -> None:
        """Return when every message of the group has an outcome. There is no deadline but the caller's."""
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
        """The key of each message that equals none in flight. A key belongs to its message from here on."""
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
        # Nothing is awaited between the queue and this, so the numbers are those that the broker counts.
        for index, key in held:
            self._written += 1
            self._in_flight[self._written] = (group, index, key)
            self._numbers[key] = self._written
            del admitted[index]
        await written

    async def put(self, received: tuple[int, Any]) -> None:
        """Take a frame that the connection has received for this channel."""
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
        # Messages in flight are in the order of their numbers; the tag 0 stands for all.
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
        """The broker has closed the channel. Messages written after the one that it minds never arrived."""
        reason = f"RabbitMQ: {frame.reply_text}"
        whole_exchange = frame.reply_code in (_ACCESS_REFUSED, _NOT_FOUND) and not _ONE_TOPIC.search(reason)
        one = len(self._in_flight) == 1
        for group, index, _ in self._in_flight.values():
            group.settle(index, Undeliverable(reason) if whole_exchange or one else Entangled(reason))
        self._end(Undeliverable(reason) if whole_exchange else Entangled(reason))
        # The number is free when our agreement is on its way; until then nobody may open it again.
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
            # Cancel it now, not when its caller wakes up: nothing may be written to a channel that is closed.
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
