"""HTTP/1.1 for hostile callers: uvicorn's protocol, with limits on everything that a peer can make the server hold.

| the peer | the server |
| --- | --- |
| sends 64 KiB or over 100 fields before, within or after a body | answers 431 |
| takes over 10 s for a head | answers 408; only closes if no byte of the head came |
| sends less than 16 KiB of a body in 30 s | answers 408 |
| takes less than 16 KiB of an answer in 30 s | cuts the peer off |
| leaves answers unread, over 64 MiB of them in this server | cuts off the peer that it has waited for longest |
| pipelines over 16 requests | cuts the peer off |
| connects while all connections are taken | cuts off the peer that it has waited for longest; without one: 503 |

Time counts only while the server waits for the peer. A refused peer may go on sending for a second or two, unread, so
that it gets to read the answer.

The head of an answer is sent together with the first part of its body: uvicorn writes them separately, and each write
is a system call and a packet, the most expensive part of a short answer.
"""

import asyncio
import weakref
from collections.abc import Callable, Collection
from functools import partial
from http import HTTPStatus
from typing import Any, cast

from httptools import HttpParserCallbackError
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from shared.runtime.metrics import HTTP_REFUSALS


class HeadAndBody:
    """Wraps the transport of one answer, and keeps the head back until a part of the body comes, or the end.

    It does not keep the answer alive: requests and their bodies are freed without the garbage collector.
    """

    def __init__(self, transport: asyncio.Transport, cycle: "weakref.ref[RequestResponseCycle]") -> None:
        self._transport = transport
        self._cycle = cycle
        self._head: bytes | None = None  # empty once it is written

    @classmethod
    def join(cls, cycle: RequestResponseCycle) -> None:
        joined = cls(cycle.transport, weakref.ref(cycle))
        cycle.transport = cast("asyncio.Transport", joined)
        cycle.on_response = partial(joined.end, cycle.on_response)

    def write(self, data: bytes) -> None:
        """Keep the head; write everything else. Data before the head is not the answer yet: `100 Continue`."""
        if self._head:
            self._transport.writelines([self._head, data] if data else [self._head])
            self._head = b""
        elif self._head is None and self._has_started():
            self._head = data
        else:
            self._transport.write(data)

    def end(self, on_response: Callable[[], None]) -> None:
        self._flush()
        on_response()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _has_started(self) -> bool:
        cycle = self._cycle()
        return cycle is not None and cycle.response_started

    def _flush(self) -> None:
        if self._head and not self._transport.is_closing():
            self.write(b"")


_LINGER_SECONDS = 1.0


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one server's peers. A peer must make `progress_bytes` of progress in `stall_seconds`."""

    connections: int = 512
    head_bytes: int = 64 * 2**10
    fields: int = 100
    pipelined: int = 16
    head_seconds: float = 10.0
    stall_seconds: float = 30.0
    progress_bytes: int = 16 * 2**10
    unread_bytes: int = 64 * 2**20


class OpenConnections:
    """The open connections of one server: admits new ones, and ends those that the server waits for too long."""

    def __init__(self, server: str, limits: Limits) -> None:
        self.server = server
        self.limits = limits
        self._open: set[BoundedHttp] = set()

    def admit(self, connection: "BoundedHttp") -> bool:
        """Admit one more connection if there is room, or after cutting off the slowest one."""
        if len(self._open) >= self.limits.connections and self._cut_off_slowest(self._open) is None:
            return False
        self._open.add(connection)
        return True

    def remove(self, connection: "BoundedHttp") -> None:
        """Forget a closed connection; a second call does nothing."""
        self._open.discard(connection)

    def limit_unread(self) -> None:
        """Cut off the slowest readers until the unread answers of the others fit into memory."""
        unread = {connection: size for connection in self._open if (size := connection.unread_bytes())}
        while sum(unread.values()) > self.limits.unread_bytes:
            slowest = self._cut_off_slowest(unread)
            unread = {connection: size for connection, size in unread.items() if connection is not slowest}

    def end_overdue(self, now: float) -> None:
        for connection in list(self._open):
            connection.end_if_overdue(now)

    def count(self, reason: str) -> None:
        """Count a connection that was ended; `reason` is its status, or `cut_off`."""
        HTTP_REFUSALS.labels(self.server, reason).inc()

    @staticmethod
    def _cut_off_slowest(among: "Collection[BoundedHttp]") -> "BoundedHttp | None":
        waiting = [connection for connection in among if connection.keeps_waiting()]
        if not waiting:
            return None
        slowest = min(waiting, key=lambda connection: connection.waiting_since)
        slowest.cut_off()
        return slowest


class BoundedHttp(HttpToolsProtocol):
    """One connection. At `waiting_since` (the loop's time) the server began to wait for the peer."""

    def __init__(self, connections: OpenConnections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.waiting_since = self.loop.time()
        self._all = connections
        self._limits = connections.limits
        self._refusal = HTTPStatus.BAD_REQUEST
        self._refused = False
        self._in_head = False  # the head's first byte has come, its last has not
        self._in_body = False
        self._overhead_bytes = 0  # bytes since the end of a head or a message that are no body
        self._advanced = False  # whether the parser's present input ends such a stretch
        self._body_bytes = 0  # since `waiting_since`
        self._unread_bytes = 0  # at `waiting_since`

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type] # a stream's, which is a Transport
        if not self._all.admit(self):
            self._say(HTTPStatus.SERVICE_UNAVAILABLE)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Give the parser at most a head's length at a time, so that it never holds more of one."""
        if self._has_ended():
            return
        if len(data) < self._limits.head_bytes - self._overhead_bytes:
            self._parse(data)
            return
        rest = memoryview(data)
        while rest and not self._has_ended():
            part = rest[: self._limits.head_bytes - self._overhead_bytes]
            rest = rest[len(part) :]
            self._parse(part)

    def _parse(self, part: bytes | memoryview) -> None:
        self._advanced = False
        super().data_received(part)  # type: ignore[arg-type] # the parser takes any buffer
        if self._advanced:
            self._overhead_bytes = 0
            return
        self._overhead_bytes += len(part)
        if self._is_too_much() and not self._has_ended():
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _has_ended(self) -> bool:
        return self._refused or self.transport.is_closing()

    def _is_too_much(self) -> bool:
        return self._overhead_bytes >= self._limits.head_bytes or len(self.headers or ()) > self._limits.fields

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._begin_to_wait()

    def on_headers_complete(self) -> None:
        if len(self.headers) > self._limits.fields:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise HttpParserCallbackError("too many fields")
        if len(self.pipeline) >= self._limits.pipelined:
            raise HttpParserCallbackError("too many requests at once")
        super().on_headers_complete()
        HeadAndBody.join(self.cycle)
        self.headers = []  # fields after the body are no headers: no proxy has checked them
        self._in_head, self._in_body, self._advanced = False, True, True
        self._begin_to_wait()

    def on_body(self, body: bytes) -> None:
        self._advanced = True
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body, self._advanced = False, True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._begin_to_wait()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_from(self.loop.time())
        self.loop.call_soon(self._all.limit_unread)  # not here, in the midst of a write

    def send_400_response(self, msg: str) -> None:
        """Refuse the request. uvicorn calls this when the parser, or a limit of this class, finds a fault."""
        self._refuse(self._refusal)

    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def keeps_waiting(self) -> bool:
        if self._refused or self.unread_bytes():
            return True
        return not self.flow.read_paused if self._in_body else self._owes_nothing()

    def end_if_overdue(self, now: float) -> None:
        if not self.keeps_waiting() or (self._made_progress() and not self._refused):
            self._wait_from(now)
        elif now - self.waiting_since > self._patience():
            self._time_out()

    def cut_off(self) -> None:
        """Close at once, even in the middle of an answer."""
        self._all.remove(self)
        self._all.count("cut_off")
        self.transport.abort()

    def _begin_to_wait(self) -> None:
        # While an answer is unread, further bytes from the peer are no progress.
        if not self.unread_bytes():
            self._wait_from(self.loop.time())

    def _wait_from(self, now: float) -> None:
        self.waiting_since = now
        self._body_bytes = 0
        self._unread_bytes = self.unread_bytes()

    def _owes_nothing(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        return cycle is None or cycle.response_complete

    def _made_progress(self) -> bool:
        if unread := self.unread_bytes():
            return self._unread_bytes - unread >= self._limits.progress_bytes
        # A body whose request is already answered is read only so that the peer gets to read the answer.
        return not self._owes_nothing() and self._body_bytes >= self._limits.progress_bytes

    def _patience(self) -> float:
        if self._refused:
            return _LINGER_SECONDS
        stalls = self._in_body or self.unread_bytes()
        return self._limits.stall_seconds if stalls else self._limits.head_seconds

    def _time_out(self) -> None:
        if self._refused:
            self.transport.abort()
        elif self._in_head or self._in_body:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.cut_off()

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer with `status` and read no more. Only close if the peer would take this for the answer to another
        request."""
        if self.unread_bytes() or not self._may_answer():
            self.cut_off()
            return
        if not self._owes_nothing():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._say(status)
        # Closing while the peer still sends would make its system drop the answer before the peer has read it.
        self.transport.write_eof()
        self._refused = True
        self._wait_from(self.loop.time())

    def _say(self, status: HTTPStatus) -> None:
        self._all.count(str(status.value))
        text = status.phrase.encode()
        head = STATUS_LINE[status] + b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(text) + text)

    def _may_answer(self) -> bool:
        if self.pipeline:
            return False
        return not self.cycle.response_started if self._in_body else self._owes_nothing()
