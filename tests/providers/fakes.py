"""Fakes of providers that run as processes, seen from a test."""

import asyncio
import os
import select
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from subprocess import PIPE, Popen, TimeoutExpired
from threading import Lock

import msgspec

from tests.providers.rules import Do, Order, Rule, Told

_SECONDS = 30.0
"""A fake starts, replies and ends within this time, or it never will."""


class FakeProcess:
    """A fake, and orders to it, which it obeys at once; without a process, a port where nobody listens."""

    def __init__(self, process: Popen[bytes] | None, port: int) -> None:
        self.port = port
        self._process = process
        self._turn = Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, *rules: Rule, always: Rule | None = None) -> None:
        """Have the next calls answered so, one after the other, and those behind them by `always`."""
        await self._order(Order(Do.ANSWER, list(rules), always))

    async def tell(self) -> Told:
        """What has arrived so far."""
        return await self._order(Order(Do.TELL))

    async def forget(self) -> None:
        """Begin anew: what comes from now on is all that is told, and connections that are open count no more."""
        await self._order(Order(Do.FORGET))

    async def let_go(self) -> None:
        """Answer the calls that are held."""
        await self._order(Order(Do.LET_GO))

    async def _order(self, order: Order) -> Told:
        return await asyncio.to_thread(self._order_in_turn, order)

    def _order_in_turn(self, order: Order) -> Told:
        process = self._process
        assert process is not None and process.stdin is not None
        with self._turn:
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            process.stdin.flush()
            return msgspec.json.decode(_read_line(process), type=Told)


@asynccontextmanager
async def fake_process(module: str) -> AsyncIterator[FakeProcess]:
    """The same for one test alone."""
    with run_fake(module) as fake:
        yield fake


@contextmanager
def run_fake(module: str) -> Iterator[FakeProcess]:
    """Run `tests.providers.<module>` for as long as this lasts."""
    with Popen((sys.executable, "-m", f"tests.providers.{module}"), stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            port = msgspec.json.decode(_read_line(process), type=dict[str, int])["port"]
            yield FakeProcess(process, port)
        finally:
            process.stdin.close()
            try:
                process.wait(_SECONDS)
            except TimeoutExpired:
                process.kill()


def _read_line(process: Popen[bytes]) -> bytes:
    """The next line that a process writes; it writes no more than it is asked for. One that writes none is killed."""
    assert process.stdout is not None
    deadline = time.monotonic() + _SECONDS
    output, line = process.stdout.fileno(), b""
    poll = select.poll()
    poll.register(output, select.POLLIN)
    while not line.endswith(b"\n"):
        if not poll.poll(1_000 * max(0.0, deadline - time.monotonic())):
            process.kill()
            raise TimeoutError(f"a fake wrote no line within {_SECONDS:g} s")
        if not (part := os.read(output, 65_536)):
            raise EOFError("a fake has ended")
        line += part
    return line
