"""A load of POSTs on connections that stay open, from a process of its own: `python -m tests.bench.load` reads an
`Order` as JSON and answers with a `Load`.

It is an open loop: each request has its moment, whatever became of those before it, and its time counts from that
moment. Where every connection is busy it waits for one, and that counts too. With a rate of 0 the next request goes
out as soon as a connection is free. It shares the machine with what it measures, so it does little: requests are
bytes made beforehand, of an answer it reads the status and the length.
"""

import asyncio
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import cast

import msgspec
import uvloop
from msgspec import Struct

from tests.bench.report import Wrong

_GIVEN_UP_SECONDS = 120.0
_HEADERS_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class Order(Struct, frozen=True):
    """POST `path` on these ports, with the items as bodies, in turns. Times are in seconds."""

    ports: list[int]
    path: str
    headers: dict[str, str]
    bodies: list[str]
    rate: float
    connections: int


class Load(Struct, frozen=True):
    """What became of it: the answers by status, the latency of each in ms, in their order of arrival."""

    statuses: dict[str, int]
    latencies: list[float]
    seconds: float
    cpu_seconds: float


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, sender: "Sender") -> None:
        self._sender = sender
        self._answer = bytearray()
        self._due = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, due: float) -> None:
        """Send a request whose moment was `due`."""
        self._due = due
        assert self._transport is not None
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        end = self._answer.find(_HEADERS_END)
        if end < 0:
            return
        at = self._answer.lower().find(_LENGTH, 0, end) + len(_LENGTH)
        length = int(self._answer[at : self._answer.find(b"\r", at)])
        if len(self._answer) >= end + len(_HEADERS_END) + length:
            status = self._answer[9:12].decode()
            self._answer.clear()
            self._sender.answered(self, status, self._due)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sender.lost()


class Sender:
    """The connections and what waits for them."""

    def __init__(self, requests: Sequence[bytes], rate: float) -> None:
        self.statuses: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.done = asyncio.Event()
        self._requests = requests
        self._rate = rate
        self._free: deque[Connection] = deque()
        self._next = 0
        self._began = 0.0

    async def run(self, connections: Sequence[Connection]) -> float:
        """Send all: how many seconds passed until the last answer."""
        self._free.extend(connections)
        self._began = time.perf_counter()
        while not self.done.is_set():
            self._send_due()
            await asyncio.sleep(0.001 if self._rate else 0.05)
            if time.perf_counter() - self._began > _GIVEN_UP_SECONDS:
                break
        return time.perf_counter() - self._began

    def answered(self, connection: Connection, status: str, due: float) -> None:
        """Note an answer and use its connection again."""
        self.latencies.append((time.perf_counter() - due) * 1000)
        self.statuses[status] += 1
        self._free.append(connection)
        if len(self.latencies) == len(self._requests):
            self.done.set()
        else:
            self._send_due()

    def lost(self) -> None:
        """Note a connection that the server ended."""
        if not self.done.is_set():
            self.statuses["lost"] += 1
            self.done.set()

    def _send_due(self) -> None:
        now = time.perf_counter()
        while self._free and self._next < len(self._requests):
            due = self._began + self._next / self._rate if self._rate else now
            if due > now:
                return
            self._free.popleft().send(self._requests[self._next], due)
            self._next += 1


async def loaded(order: Order) -> Load:
    """Carry the order out."""
    sender = Sender([_request(order, body.encode()) for body in order.bodies], order.rate)
    loop = asyncio.get_running_loop()
    connections = []
    for number in range(order.connections):
        port = order.ports[number % len(order.ports)]
        _, connection = await loop.create_connection(lambda: Connection(sender), "127.0.0.1", port)
        connections.append(connection)
    used = time.process_time()
    seconds = await sender.run(connections)
    return Load(dict(sender.statuses), sender.latencies, seconds, time.process_time() - used)


async def in_a_process(order: Order) -> Load:
    """Have it carried out elsewhere."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.load", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await child.communicate(msgspec.json.encode(order))
    if child.returncode != 0:
        raise Wrong(f"the load's process ended with {child.returncode}")
    return msgspec.json.decode(told, type=Load)


def _request(order: Order, body: bytes) -> bytes:
    headers = {"host": "127.0.0.1", **order.headers, "content-length": str(len(body))}
    lines = [f"POST {order.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + _HEADERS_END + body


if __name__ == "__main__":
    ordered = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(loaded(ordered))))
