"""Fakes of providers that run as processes, seen from a test."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from subprocess import PIPE, Popen

import msgspec

from tests.providers.rules import Do, Order, Rule, Told


class FakeProcess:
    """A fake, and orders to it, which it obeys at once; without a process, a port where nobody listens."""

    def __init__(self, process: Popen[bytes] | None, port: int) -> None:
        self.port = port
        self._process = process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, *rules: Rule, always: Rule | None = None) -> None:
        """Have the next calls answered so, one after the other, and those behind them by `always`."""
        self._order(Order(Do.ANSWER, list(rules), always))

    async def tell(self) -> Told:
        """What has arrived so far."""
        return self._order(Order(Do.TELL))

    async def forget(self) -> None:
        """Begin anew: what comes from now on is all that is told, and connections that are open count no more."""
        self._order(Order(Do.FORGET))

    def _order(self, order: Order) -> Told:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        process.stdin.flush()
        return msgspec.json.decode(process.stdout.readline(), type=Told)


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
        port = msgspec.json.decode(process.stdout.readline(), type=dict[str, int])["port"]
        try:
            yield FakeProcess(process, port)
        finally:
            process.stdin.close()
