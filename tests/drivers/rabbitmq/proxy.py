"""A way to a server that can fall silent, as an unplugged cable does: nothing is closed, nothing arrives; or be cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class SilencableProxy:
    """Forwards TCP connections on a port of its own to one server. While it is `silent`, it forwards nothing; while it
    is `mute`, nothing that the server says. `swallowed` counts the bytes that it has not forwarded. It falls silent
    when a client says its `last_words`."""

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.silent = False
        self.mute = False
        self.swallowed = 0
        self.last_words = b""
        self._target = (host, port)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for writer in self._writers:
                writer.transport.abort()

    def cut(self) -> None:
        """Reset every connection, on both sides, with whatever is on its way."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(*self._target)
        self._writers += [writer, there[1]]
        for source, sink, answers in ((reader, there[1], False), (there[0], writer, True)):
            self._tasks.add(asyncio.create_task(self._forward(source, sink, answers=answers)))

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                self.silent = self.silent or bool(self.last_words and self.last_words in data)
                if self.silent or (self.mute and answers):
                    self.swallowed += len(data)
                else:
                    sink.write(data)
                    await sink.drain()
            if not self.silent:
                sink.close()
