"""Sends the head of an HTTP answer together with the first part of its body.

uvicorn writes them separately, and each write is a system call and a packet: the most expensive part of a short answer.
"""

import asyncio
import weakref
from collections.abc import Callable
from functools import partial
from typing import cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


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
