"""A receiver of deliveries that somebody else might run: a process that notes each arrival, by its own clock and before
it answers, in a file that tests read; so what has come in is known whatever becomes of those who called.

`/name` answers 200 at once, until it is told another answer for that path.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

HANG = -1
"""In the place of a status: no answer."""


class Arrival(msgspec.Struct, frozen=True):
    """A request. `at` and `answered_at` are of this machine's clock, in nanoseconds."""

    at: int
    path: str
    headers: dict[str, str]
    body: str

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def sequence(self) -> int:
        return int(self.headers["carillon-sequence"])

    @property
    def attempt(self) -> int:
        return int(self.headers["carillon-attempt"])

    @property
    def events(self) -> list[object]:
        events: list[object] = msgspec.json.decode(self.body)
        return events


class Behaviour(msgspec.Struct):
    """How a path answers from now on: the first `statuses`, and then `always`, each after so long."""

    path: str
    always: int = 200
    statuses: list[int] = []
    seconds: float = 0.0
    retry_after: str = ""


class Receiver:
    """The process, seen from a test."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, notes: Path) -> None:
        self._process = process
        self._notes = notes
        self._read = 0
        self._arrivals: list[Arrival] = []
        self._asking = asyncio.Lock()
        self.url = f"http://127.0.0.1:{port}"

    async def answer(
        self, path: str, always: int = 200, *statuses: int, seconds: float = 0, retry_after: str = ""
    ) -> None:
        """Have it answer so from now on."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        behaviour = Behaviour(path, always, list(statuses), seconds, retry_after)
        async with self._asking:
            stdin.write(msgspec.json.encode(behaviour) + b"\n")
            await asyncio.wait_for(stdout.readline(), 50)

    def arrivals(self, path: str | None = None) -> list[Arrival]:
        """What has arrived so far."""
        with self._notes.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._arrivals += [msgspec.json.decode(line, type=Arrival) for line in whole.splitlines()]
        return [arrival for arrival in self._arrivals if path in (None, arrival.path)]


@asynccontextmanager
async def receiver(notes: Path) -> AsyncIterator[Receiver]:
    """A receiver that notes in this file."""
    notes.touch()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.receivers", str(notes), stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None and process.stdout is not None
    port = int(await process.stdout.readline())
    try:
        yield Receiver(process, port, notes)
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 50)


class _Connection(asyncio.Protocol):
    def __init__(self, file: int, behaviours: dict[str, Behaviour]) -> None:
        self._file = file
        self._behaviours = behaviours
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", 0))
        if len(rest) >= size:
            self._received = rest[size:]
            self._take(first.split(" ")[1], headers, rest[:size].decode())

    def _take(self, path: str, headers: dict[str, str], body: str) -> None:
        arrival = Arrival(time.time_ns(), path, headers, body)
        os.write(self._file, msgspec.json.encode(arrival) + b"\n")
        behaviour = self._behaviours.get(path) or Behaviour(path)
        status = behaviour.statuses.pop(0) if behaviour.statuses else behaviour.always
        if status == HANG:
            return
        after = f"Retry-After: {behaviour.retry_after}\r\n" if behaviour.retry_after else ""
        answer = f"HTTP/1.1 {status} Said\r\n{after}Content-Length: 2\r\n\r\nok".encode()
        if behaviour.seconds:
            asyncio.get_running_loop().call_later(behaviour.seconds, self._write, answer)
        else:
            self._write(answer)

    def _write(self, answer: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(answer)


async def _serve(notes: str) -> None:
    loop, behaviours = asyncio.get_running_loop(), dict[str, Behaviour]()
    file = os.open(notes, os.O_WRONLY | os.O_APPEND)
    server = await loop.create_server(lambda: _Connection(file, behaviours), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        behaviour = msgspec.json.decode(line, type=Behaviour)
        behaviours[behaviour.path] = behaviour
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
