"""A terminal, for what is only asked or drawn where one is."""

import asyncio
import os
import pty
import sys
from collections.abc import Awaitable, Callable

from tests.cli.conftest import Program


class Terminal:
    """The command on a terminal of its own, 100 columns wide."""

    def __init__(self, cli: Program, *words: str, **environment: str) -> None:
        self._cli, self._words, self._environment = cli, words, environment
        self.seen = ""

    async def run(self, waits_for: str, then: Callable[[], Awaitable[None]], answer: str = "") -> int:
        """Do something once a text was seen; the exit code."""
        master, slave = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services", *self._words, stdin=slave, stdout=slave, stderr=slave,
            env=self._cli.variables(TERM="xterm", COLUMNS="100", **self._environment), cwd=self._cli.home,
        )  # fmt: skip
        os.close(slave)
        done = False
        try:
            while chunk := await asyncio.to_thread(self._read, master):
                self.seen += chunk
                if not done and waits_for in self.seen:
                    done = True
                    await then()
                    os.write(master, answer.encode())
        finally:
            os.close(master)
        assert done, self.seen
        return await process.wait()

    @staticmethod
    def _read(master: int) -> str:
        try:
            return os.read(master, 65_536).decode(errors="replace")
        except OSError:  # the other side has ended
            return ""


async def nothing() -> None:
    """What is done where only an answer is waited for."""
