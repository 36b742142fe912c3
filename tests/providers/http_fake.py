"""A provider that is called by HTTP, as a process: it notes arrivals by its own clock and answers as told."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tests.providers.notes import Notes, obey, reset
from tests.providers.rules import Arrived, Counts, Cut, Rule

_GOODBYE = "Connection: close\r\n"


class Connection(asyncio.Protocol):
    """One connection: call, answer, call, answer."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._received = bytearray()
        self._began = (0, 0.0)
        self._transport: Any = None
        self._rule: Rule | None = None
        self._of_message = True
        self._peer = 0
        self._counts = Counts()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._counts = self._notes.connect()
        self._peer = self._counts.connections

    def connection_lost(self, error: Exception | None) -> None:
        self._counts.ended += 1

    def data_received(self, data: bytes) -> None:
        if not self._received:
            self._began = (time.monotonic_ns(), time.time())
            self._of_message = self.is_message(data)
            self._rule = self._notes.rule() if self._of_message else Rule()
        self._notes.counts.bytes += len(data) * self._of_message
        self._received += data
        assert self._rule is not None
        if self._rule.cut is Cut.BEGINNING:
            self._reset()
            return
        self._read()

    def _read(self) -> None:
        head, found, rest = bytes(self._received).partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", 0))
        if len(rest) < size:
            return
        self._received.clear()
        path = first.split(" ")[1]
        began, at = self._began
        call = Arrived(began, at, self._peer, path, headers, rest[:size].decode())
        if not self._of_message:
            self._notes.counts.others += 1
            self._write(self.serve(call))
            return
        self._notes.begin()
        self._notes.arrived.append(call)
        assert self._rule is not None
        rule = self.examine(call, self._rule)
        asyncio.get_running_loop().call_later(rule.delay_seconds, self._answer, rule)

    def is_message(self, beginning: bytes) -> bool:
        """Whether a call that begins so is a message."""
        return True

    def serve(self, call: Arrived) -> Rule:
        """How a call that is no message is answered."""
        raise AssertionError(f"{call.path} is no message")

    def examine(self, call: Arrived, rule: Rule) -> Rule:
        """How a message is answered to which this rule applies."""
        return rule

    def _answer(self, rule: Rule) -> None:
        if rule.hang:
            return
        self._notes.end()
        self._write(rule)

    def _write(self, rule: Rule) -> None:
        body = rule.text.encode()
        headers = "".join(f"{name}: {value}\r\n" for name, value in rule.headers.items())
        head = f"HTTP/1.1 {rule.status} Said\r\n{headers}{_GOODBYE * rule.close}Content-Length: {len(body)}\r\n\r\n"
        match rule.cut:
            case Cut.CALL:
                self._reset()
            case Cut.ANSWER:
                self._transport.write(head[:12].encode())
                asyncio.get_running_loop().call_later(0.02, self._reset)
            case Cut.BODY:
                self._transport.write(head.encode() + body[:1])
                asyncio.get_running_loop().call_later(0.02, self._reset)
            case Cut.NEVER | Cut.BEGINNING:
                self._transport.write(head.encode() + body)
                if rule.close:
                    self._transport.close()

    def _reset(self) -> None:
        reset(self._transport)


async def serve(make_connection: Callable[[Notes], asyncio.Protocol]) -> None:
    """Answer calls until nobody gives orders any more."""
    notes = Notes()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: make_connection(notes), "127.0.0.1", 0, backlog=1_024)
    await obey(notes, server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    asyncio.run(serve(Connection))
