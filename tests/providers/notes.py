"""What every fake does besides talking like a provider: it takes notes, and orders from its test.

Its port stands in its first line; orders come by its standard input, a line each, and it ends with it.
"""

import asyncio
import json
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from tests.providers.rules import Arrived, Counts, Do, Order, Rule, Told


class Notes:
    """What all connections of a fake share."""

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []
        self.counts = Counts()
        self.next: list[Rule] = []
        self.always = Rule()
        self._under_way = 0
        self._held: list[Callable[[], None]] = []

    def rule(self) -> Rule:
        return self.next.pop(0) if self.next else self.always

    def begin(self) -> None:
        self._under_way += 1
        self.counts.calls += 1
        self.counts.most = max(self.counts.most, self._under_way)

    def end(self) -> None:
        self._under_way -= 1

    def connect(self) -> Counts:
        """Count a connection, and return the counts that its end belongs to."""
        self.counts.connections += 1
        return self.counts

    def hold(self, answer: Callable[[], None]) -> None:
        """Wait with an answer until the test lets it go."""
        self._held.append(answer)

    def let_go(self) -> None:
        held, self._held = self._held, []
        for answer in held:
            answer()

    def obey(self, order: Order) -> Told:
        match order.do:
            case Do.ANSWER:
                self.next, self.always = order.next, order.always or Rule()
            case Do.FORGET:
                self.arrived, self.counts, self._under_way, self._held = [], Counts(), 0, []
            case Do.LET_GO:
                self.let_go()
            case Do.TELL:
                pass
        return Told(self.arrived, self.counts)


async def obey(notes: Notes, port: int) -> None:
    """Obey orders until nobody gives any more."""
    print(json.dumps({"port": port}), flush=True)
    orders = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        told = notes.obey(msgspec.json.decode(line, type=Order))
        sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
        sys.stdout.flush()


def reset(transport: Any) -> None:
    """Break the connection off with a RST instead of a FIN."""
    raw = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
