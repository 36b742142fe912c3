"""The way to S3, for a test to shut, to slow down and to break."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_PIECE_BYTES = 8_192


class Way:
    """Relays connections to the server of a URL, at a port of its own that stays the same.

    `pause` is how many seconds each piece of an answer takes. A connection that has brought `break_after` bytes ends
    there. Of both, 0 is none.
    """

    def __init__(self, target: str) -> None:
        self.pause = 0.0
        self.break_after = 0
        self.broken = 0
        self._target = urlsplit(target)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._free = asyncio.Event()
        self._free.set()
        self._relays: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def open(self) -> None:
        """Let everything through, and at once."""
        self.pause, self.break_after = 0.0, 0
        await self._listen()
        self._free.set()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Refuse connections, and end those that there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        # What was accepted right before has no relay yet.
        await asyncio.sleep(0)
        while self._relays:
            for relay in self._relays:
                relay.cancel()
            await asyncio.gather(*self._relays, return_exceptions=True)

    async def silence(self) -> None:
        """Take connections and say nothing, until it is opened again."""
        self._free.clear()

    async def fray(self) -> None:
        """Let next to nothing through before a connection ends, those that there are among them."""
        await self.shut()
        self.break_after = 2_000
        await self._listen()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _close_after(writer):
            there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
            async with _close_after(back):
                ways = {asyncio.create_task(self._ask(reader, back)), asyncio.create_task(self._answer(there, writer))}
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_PIECE_BYTES):
                writer.write(data)
                await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self.break_after or float("inf")
        with suppress(OSError):
            while data := await reader.read(int(min(_PIECE_BYTES, left))):
                await self._free.wait()
                await asyncio.sleep(self.pause)
                writer.write(data)
                await writer.drain()
                left -= len(data)
                if left <= 0:
                    self.broken += 1
                    return


@asynccontextmanager
async def _close_after(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """End the connection with the block. An end, not a reset: what came before it is read."""
    try:
        yield
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def way_to(target: str) -> AsyncIterator[Way]:
    """An open one."""
    way = Way(target)
    await way.open()
    try:
        yield way
    finally:
        await way.shut()
