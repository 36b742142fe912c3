"""One HTTP/2 connection that carries many requests at a time.

`h2` reads and writes the frames. httpx is not used: it ends every request at a GOAWAY, including those that the server
still answers, and repeats others by itself. `h2` also gives up a connection at a GOAWAY, so that frame is read here:

- The server never looked at a stream above the last id: not taken. The other streams still get their answers.
- RST_STREAM with REFUSED_STREAM says the same of one stream. Any other reset leaves its outcome open.

A request leaves as a whole, in the step in which it begins: `has_room` says when that is possible.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import monotonic, time
from typing import cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    PingAckReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from shared.drivers.http import NotConnected, PostedAnswer, Unreachable
from shared.drivers.http.client import retry_after_seconds
from shared.drivers.http.departure import is_closed_by_peer

FRESH_SECONDS = 10.0  # after this silence the server is pinged
PING_SECONDS = 2.0
GOODBYE_SECONDS = 1.0
PROVING_ANSWERS = 10  # a server that takes one at a time at first may soon take more
REQUESTS = 2**29  # on one connection: half of all stream ids
BODY_BYTES = 16_384  # of an answer, and the largest frame

_FRAME_HEAD = 9
_GOAWAY = 0x7
_LAST_ID = 0x7FFF_FFFF
_PING = b"carillon"

Headers = Sequence[tuple[str, str]]


class Unseen(NotConnected):
    """A server that has answered on this connection before did not look at the request."""


class Http2Request:
    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def end(self) -> PostedAnswer:
        """Return the answer. Raises `NotConnected` if the server says that it did not look at the request (`Unseen` if
        it has answered others), else `Unreachable`."""
        await self._ended
        return self.answer()

    @property
    def answered(self) -> bool:
        """Whether the status is known: that is the answer, even if the rest never comes."""
        return self._status > 0

    def answer(self) -> PostedAnswer:
        asked = retry_after_seconds(self._headers.get("retry-after"), self._headers.get("date"), int(time()))
        return PostedAnswer(self._status, asked, self._headers, bytes(self._body))

    def read_head(self, headers: Headers) -> None:
        fields = dict(headers)
        self._status = int(fields.pop(":status", "0"))
        self._headers = fields

    def read_body(self, data: bytes) -> None:
        self._body += data[: BODY_BYTES - len(self._body)]

    def finish(self, error: Exception | None = None) -> None:
        if self._ended.done():
            return
        if error is None or self.answered:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)
            self._ended.exception()  # marks the error as retrieved: the caller may be gone


class Http2Connection(asyncio.Protocol):
    """One connection to one server. It calls `on_change` when there may be more or less room than before."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._h2.local_settings = Settings(client=True, initial_values={SettingCodes.ENABLE_PUSH: 0})
        loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._pinged: asyncio.Future[None] | None = None
        self._received = bytearray()
        self._requests: dict[int, Http2Request] = {}
        self._begun = 0
        self._heard = monotonic()
        self._writing = True
        self._leaving = False
        self._fault = "broke off without an answer"
        self._answered = 0

    # Calls of its users.

    async def become_ready(self) -> None:
        await self._ready

    @property
    def open(self) -> bool:
        """Whether requests may begin here, now or later."""
        closing = self._transport is None or self._transport.is_closing()
        return not self._leaving and not closing and self._begun < REQUESTS

    def has_room(self, size: int) -> bool:
        """Whether a request with a body of `size` bytes could leave now, as a whole."""
        their = self._h2.remote_settings
        window = min(self._h2.outbound_flow_control_window, their.initial_window_size, their.max_frame_size)
        return self.open and self._writing and len(self._requests) < their.max_concurrent_streams and size <= window

    @property
    def full(self) -> bool:
        """Whether the server takes no more at a time, and is not expected to raise that limit."""
        known = self._answered >= PROVING_ANSWERS
        return known and len(self._requests) >= self._h2.remote_settings.max_concurrent_streams

    @property
    def ended(self) -> bool:
        return self._ended.done()

    @property
    def fresh(self) -> bool:
        """Whether the connection was alive a moment ago and has not been closed since."""
        return monotonic() - self._heard < FRESH_SECONDS and not is_closed_by_peer(self._transport)

    async def renew(self) -> None:
        """Ping the server; end the connection if it does not answer."""
        if is_closed_by_peer(self._transport):
            self.cut()
            return
        try:
            async with asyncio.timeout(PING_SECONDS):
                await asyncio.shield(self._ping())
        except TimeoutError:
            self.cut()

    def begin(self, headers: Headers, body: bytes) -> Http2Request:
        """Send a request; the caller has checked the room."""
        self._begun += 1
        try:
            stream_id = self._h2.get_next_available_stream_id()
            self._h2.send_headers(stream_id, headers)
            self._h2.send_data(stream_id, body, end_stream=True)
        except ProtocolError:
            self.cut()
            raise Unreachable("cannot be spoken to any more") from None
        request = self._requests[stream_id] = Http2Request(stream_id)
        self._flush()
        return request

    def abandon(self, request: Http2Request) -> None:
        """Drop a request. The server is told if its answer is still to come."""
        if request.stream_id in self._requests:
            with suppress(ProtocolError):  # it may be ending already
                self._h2.reset_stream(request.stream_id, ErrorCodes.CANCEL)
            self._flush()
            self._forget(request.stream_id)

    def cut(self) -> None:
        self._leaving = True
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """End the connection politely, within `GOODBYE_SECONDS`."""
        self._leaving = True
        if self._transport is None:
            return
        self._h2.close_connection()
        self._flush()
        self._transport.close()
        await asyncio.wait([self._ended], timeout=GOODBYE_SECONDS)
        self._transport.abort()

    # Calls of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's are none by inheritance
        # Bytes that do not leave at once wait here, not in the transport: a request's bytes leave when it begins. (For
        # TLS, a limit of 0 means that the buffer is always too full.)
        transport.set_write_buffer_limits(high=1)
        self._h2.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._heard = monotonic()
        self._received += data
        try:
            for kind, frame in self._whole_frames():
                if kind == _GOAWAY:
                    self._read_goaway(frame)
                    continue
                for event in self._h2.receive_data(frame):
                    self._read(event)
        except (ProtocolError, ValueError):
            # A request that was sent stays in doubt, whatever the server answers.
            self._fault = "answers, but not in HTTP/2"
            self.cut()
            return
        self._flush()
        self._on_change()

    def pause_writing(self) -> None:
        self._writing = False

    def resume_writing(self) -> None:
        self._writing = True
        self._on_change()

    def connection_lost(self, error: Exception | None) -> None:
        self._leaving = True
        if not self._ready.done():
            self._ready.set_exception(NotConnected(self._fault))
            self._ready.exception()
        if self._pinged is not None and not self._pinged.done():
            self._pinged.set_result(None)
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.finish(Unreachable(self._fault))
        if not self._ended.done():
            self._ended.set_result(None)
        self._on_change()

    # Frames.

    def _whole_frames(self) -> Iterator[tuple[int, bytes]]:
        while len(self._received) >= _FRAME_HEAD:
            size = int.from_bytes(self._received[:3])
            if size > BODY_BYTES:
                raise ProtocolError("no frame is as long as this")
            if len(self._received) < _FRAME_HEAD + size:
                return
            frame = bytes(self._received[: _FRAME_HEAD + size])
            del self._received[: len(frame)]
            yield frame[3], frame

    def _read(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged():
                if not self._ready.done():
                    self._ready.set_result(None)
            case PingAckReceived():
                if self._pinged is not None and not self._pinged.done():
                    self._pinged.set_result(None)
            case ResponseReceived(stream_id=stream_id, headers=headers) if stream_id in self._requests:
                self._requests[stream_id].read_head([(str(name), str(value)) for name, value in headers or ()])
            case DataReceived(stream_id=stream_id, data=data, flow_controlled_length=size):
                if size:
                    self._h2.acknowledge_received_data(size, stream_id)
                if stream_id in self._requests:
                    self._requests[stream_id].read_body(data or b"")
            case StreamEnded(stream_id=stream_id):
                self._answered += 1
                self._forget(stream_id)
            case StreamReset(stream_id=stream_id, error_code=ErrorCodes.REFUSED_STREAM):
                self._forget(stream_id, self._unseen("has refused the request unseen"))
            case StreamReset(stream_id=stream_id):
                self._forget(stream_id, Unreachable("broke the request off"))
            case _:
                pass

    def _read_goaway(self, frame: bytes) -> None:
        """The server takes no more requests. It still answers those up to the last id."""
        payload = frame[_FRAME_HEAD:]
        if len(payload) < 8:
            raise ProtocolError("a GOAWAY has a last id")
        last_id = int.from_bytes(payload[:4]) & _LAST_ID
        self._leaving = True
        for stream_id in [stream_id for stream_id in self._requests if stream_id > last_id]:
            self._forget(stream_id, self._unseen("says goodbye, and has not seen the request"))
        self._leave_if_done()

    def _unseen(self, reason: str) -> NotConnected:
        return Unseen(reason) if self._answered else NotConnected(reason)

    def _forget(self, stream_id: int, error: Exception | None = None) -> None:
        if (request := self._requests.pop(stream_id, None)) is not None:
            request.finish(error)
        self._leave_if_done()

    def _leave_if_done(self) -> None:
        if self._leaving and not self._requests and self._transport is not None:
            self._transport.close()

    def _ping(self) -> "asyncio.Future[None]":
        if self._pinged is None or self._pinged.done():
            self._pinged = asyncio.get_running_loop().create_future()
            self._h2.ping(_PING)
            self._flush()
        return self._pinged

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
