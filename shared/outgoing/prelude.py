"""Connections that read as much of an answer as is valid.

The status is the answer. So the parser gets each head alone, with only the fields that it needs, in a form that it
accepts: a receiver's odd header or second Content-Length does not undo the receiver's action. An answer of 204 or 304
ends with its head (RFC 9110, 15.3.5), a counted body with its last byte (RFC 9112, 6.3). Any further bytes end the
connection, also in the pool. If such bytes come after the next request was sent, they are skipped, and the connection
is not used again.

HTTP allows any number of interim answers (1xx) before the final one, and aiohttp reads them all: an endless series
keeps the whole event loop busy. A connection with more of them than an honest receiver sends is ended at once.

A politely closed connection stays open until the receiver has read all written bytes, or up to half a minute until it
has ended TLS. So connections are aborted, not closed: by then the call has its answer, or wants none.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader

from shared.outgoing.sockets import has_unread

MOST_HEADS = 5
"""The most answers to one request, including the final one."""
HEAD_BYTES = 65_536
LATE_BYTES = 4_096  # of the previous answer, before a head
HEAD_LINES = 500  # lines beyond these are dropped

_HEAD_END = re.compile(rb"\n\r?\n")
_NAME = b"HTTP/"
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n"})
_STATUS = re.compile(rb"HTTP/\d(?:\.(\d))?[ \t]+(\d{3})(?!\d)", re.IGNORECASE)
_FOLD = re.compile(rb"\n[ \t]+")
_FIELD = re.compile(rb"^([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*:[ \t]*(.*)$", re.MULTILINE)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_BODILESS = frozenset({b"204", b"304"})


class BoundedHandler(ResponseHandler):
    """A connection that ends after too many answers to one request, and is aborted when it is not needed."""

    _head = b""
    _heads = 0
    _is_kept = False
    _is_final = False
    """Whether the head of the last answer is read."""

    def set_response_params(self, **options: Any) -> None:
        self._is_kept |= self._is_final
        self._is_final = False
        self._heads = 0
        super().set_response_params(**options)

    def is_connected(self) -> bool:
        idle = self._is_final and not self._is_in_body()
        return super().is_connected() and not (idle and has_unread(self.transport))

    def close(self) -> None:
        self.abort()

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        if self._is_final:
            self._end("more than an answer")
        else:
            super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            super().data_received(data)  # arrived before the request
            return
        if not self._is_final:
            data = self._read_heads(data)
        if data and self._is_final and not self._is_in_body():
            self._end("more than an answer")
        elif self._is_final:
            super().data_received(data)
            if self.exception() is not None:
                self._end("a broken body, or more than it")
                if self._payload is not None:
                    self._payload.feed_eof()

    def _is_in_body(self) -> bool:
        return self._payload is not None and not self._payload.is_eof()

    def _read_heads(self, data: bytes) -> bytes:
        """Read the heads; return the bytes after the last one."""
        self._head += data
        while self._has_begun():
            end = _HEAD_END.search(self._head, max(len(self._head) - len(data) - 2, 0), HEAD_BYTES)
            self._heads += end is not None
            if self._heads > MOST_HEADS or (end is None and len(self._head) >= HEAD_BYTES):
                self._end("a head without an end")
                break
            if end is None:
                break
            head, self._head = self._head[: end.end()], self._head[end.end() :]
            self._read_head(head)
            if self._is_final:
                rest, self._head = self._head, b""
                return rest
        return b""

    def _has_begun(self) -> bool:
        """Whether a head begins here. Skips blank lines and the rest of the previous answer."""
        self._head = self._head.lstrip(b"\r\n")
        if self.exception() is not None or not self._head:
            return False
        if self._head[: len(_NAME)].upper() == _NAME[: len(self._head)]:
            return True
        begin = _STATUS.search(self._head) if self._is_kept else None
        if begin is not None:
            self.force_close()
            self._head = self._head[begin.start() :]
        elif not self._is_kept or len(self._head) >= LATE_BYTES:
            self._end("not HTTP")
        return begin is not None

    def _read_head(self, head: bytes) -> None:
        text = _FOLD.sub(b" ", head.translate(None, _CONTROLS))
        status = _STATUS.match(text)
        if status is None:
            self._end("no status")
            return
        version, code = b"1.0" if status[1] == b"0" else b"1.1", status[2]
        super().data_received(b"\r\n".join([b"HTTP/%b %b " % (version, code), *_lines(text, code), b"", b""]))
        self._is_final = not code.startswith(b"1") or code == b"101"

    def _end(self, reason: str) -> None:
        """End the connection. An answer that was read stays valid."""
        self.set_exception(HttpProcessingError(message=reason))
        if self.transport is not None:
            self.transport.abort()


def _lines(head: bytes, code: bytes) -> Iterator[bytes]:
    """The fields of a head, with at most one about the body's length."""
    lengths, codings = set[bytes](), list[bytes]()
    for number, (name, value) in enumerate(_FIELD.findall(head)):
        match name.lower():
            case b"content-length":
                lengths.update(part.strip() for part in value.split(b","))
            case b"transfer-encoding":
                codings += value.lower().split(b",")
            case _ if number < HEAD_LINES:
                yield b"%b: %b" % (name, value)
    if code in _BODILESS or code.startswith(b"1"):
        return
    if codings and codings[-1].strip() == b"chunked":
        yield b"Transfer-Encoding: chunked"
    elif len(lengths) == 1 and _LENGTH.fullmatch(length := lengths.pop()):
        yield b"Content-Length: %b" % length


class BoundedConnector(aiohttp.TCPConnector):
    """Makes connections with `BoundedHandler`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = partial(BoundedHandler, loop=self._loop)  # type: ignore[assignment]  # it is one, made more strict
