"""Connections without a client's manners: every byte is the test's own."""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

HOST = "127.0.0.1"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
_REFUSED = (ConnectionError, BrokenPipeError, asyncio.IncompleteReadError)
_LIMIT = 2**16


@dataclass
class Wire:
    """One connection to a port."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection(HOST, port, limit=_LIMIT))

    async def send(self, content: bytes) -> bool:
        """Send it all; whether the other side took it."""
        try:
            self.writer.write(content)
            await self.writer.drain()
        except _REFUSED:
            return False
        return True

    async def rest(self, received: bytearray | None = None) -> bytes:
        """All that comes until the other side closes, also in what is given."""
        received = bytearray() if received is None else received
        with suppress(*_REFUSED):
            while part := await self.reader.read(_LIMIT):
                received += part
        return bytes(received)

    async def until(self, count: int) -> bytes:
        """What comes until there are so many answers, or the other side closes."""
        received = bytearray()
        with suppress(*_REFUSED):
            while len(statuses(bytes(received))) < count and (part := await self.reader.read(_LIMIT)):
                received += part
        return bytes(received)

    def close(self) -> None:
        self.writer.transport.abort()


async def exchange(port: int, content: bytes, *, seconds: float = 40.0) -> list[int]:
    """Send it and read until the other side closes, or for so long: the statuses of the answers."""
    wire = await Wire.open(port)
    received = bytearray()

    async def send_and_read() -> None:
        await wire.send(content)
        await wire.rest(received)

    running = asyncio.ensure_future(send_and_read())
    try:
        await asyncio.wait({running}, timeout=seconds)
    finally:
        wire.close()
    await running
    return statuses(bytes(received))


def statuses(received: bytes) -> list[int]:
    """The statuses of the answers in what was received."""
    return [int(status) for status in _STATUS.findall(received)]


def head(
    method: str, path: str, headers: Mapping[str, str] | None = None, *, body: bytes = b"", last: bool = True
) -> bytes:
    """A request as a client writes it, which asks to close the connection if it is the `last`."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        *(f"{name}: {text}" for name, text in (headers or {}).items()),
    ]
    lines += [f"Content-Length: {len(body)}"] if body else []
    lines += ["Connection: close"] if last else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
