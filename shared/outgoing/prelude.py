"""A bound to what a receiver sends before its answer, and to how long it keeps a connection that is over.

HTTP allows any number of interim answers (1xx) before the final one, and aiohttp reads them all: a receiver that sends
them without end keeps the event loop of the whole process busy. A connection on which more come than an honest receiver
sends is ended at once, as one that does not speak HTTP, also while it waits in the pool.

A connection that is closed politely stays open until the receiver has read what was written to it, or for half a minute
until it has ended TLS. So connections are not closed but aborted: the call has its answer, or wants none.
"""

from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader

MOST_HEADS = 5
"""The most answers to one request, the final one included."""
_PIECE_BYTES = 4_096  # 256 KiB of heads in one go would hold the loop for 35 ms


class BoundedHandler(ResponseHandler):
    """A connection that is ended by too many answers to one request, and at once where nobody needs it."""

    _heads = 0

    def set_response_params(self, **options: Any) -> None:
        self._heads = 0
        super().set_response_params(**options)

    def close(self) -> None:
        self.abort()

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        self._heads += 1
        if self._heads <= MOST_HEADS:
            super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        while len(data) > _PIECE_BYTES and not self._is_in_body():
            self._receive(data[:_PIECE_BYTES])
            data = data[_PIECE_BYTES:]
            if self.transport is None or self.exception() is not None:
                return
        self._receive(data)

    def _is_in_body(self) -> bool:
        return self._payload is not None and not self._payload.is_eof()

    def _receive(self, data: bytes) -> None:
        super().data_received(data)
        if self._heads > MOST_HEADS and self.transport is not None:
            self.set_exception(HttpProcessingError(message="too many interim answers"))
            self.transport.abort()


class BoundedConnector(aiohttp.TCPConnector):
    """Makes such connections."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = partial(BoundedHandler, loop=self._loop)  # type: ignore[assignment]  # it is one, made more strict
