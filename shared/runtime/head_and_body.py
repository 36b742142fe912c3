"""Answers in one piece: the head of an HTTP answer goes out with the first part of its body.

uvicorn writes them one after the other, and each write is a system call and a packet. To write is the most expensive
part of a short answer.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class HeadAndBody:
    """Stands before the transport of one answer, and keeps the head back until a part of the body comes, or the end."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._on_response: Callable[..., None] = cycle.on_response
        self._head = b""
        self._has_head = False

    @classmethod
    def join(cls, cycle: RequestResponseCycle) -> None:
        """Have this answer written in one piece."""
        joined = cls(cycle)
        cycle.transport = cast("asyncio.Transport", joined)
        cycle.on_response = joined.end

    def write(self, data: bytes) -> None:
        """Keep the head; write everything else. What comes before the head is no answer yet: `100 Continue`."""
        if self._head:
            self._transport.writelines([self._head, data] if data else [self._head])
            self._head = b""
        elif self._has_head or not self._cycle.response_started:
            self._transport.write(data)
        else:
            self._head = data
            self._has_head = True

    def end(self) -> None:
        """The answer is complete, with a body or without."""
        self._flush()
        self._on_response()

    def close(self) -> None:
        """Close the connection behind what was written."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the connection is closed, or will be."""
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head:
            self.write(b"")
