"""A way to the API that loses answers: the request is processed, and the connection is reset instead of the answer."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress


class CuttingProxy:
    """Forwards TCP connections to a port; resets those on which one of the next `to_lose` answers begins. `lost` are
    their first bytes, `carried` how many bytes of requests went through."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.to_lose = 0
        self.lost: list[bytes] = []
        self.carried = 0
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()

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

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_api, to_api = await asyncio.open_connection("127.0.0.1", self._target)
        self._tasks.add(asyncio.create_task(self._requests(reader, to_api)))
        self._tasks.add(asyncio.create_task(self._answers(from_api, writer)))

    async def _requests(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with _aborted(sink), suppress(ConnectionError):
            while data := await source.read(65_536):
                self.carried += len(data)
                sink.write(data)
                await sink.drain()

    async def _answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with _aborted(sink), suppress(ConnectionError):
            while data := await source.read(65_536):
                if self.to_lose > 0:
                    self.to_lose -= 1
                    self.lost.append(data)
                    break
                sink.write(data)
                await sink.drain()


@contextmanager
def _aborted(sink: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    finally:
        sink.transport.abort()
