"""A terminal, for what is only asked or drawn where one is."""

import asyncio
import os
import pty
import select
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.cli.conftest import SECONDS, Program
from tests.e2e.forked import fork_command
from tests.waiting import until


class Terminal:
    """The command on a terminal of its own, 100 columns wide."""

    def __init__(self, cli: Program, *words: str, **environment: str) -> None:
        self._cli, self._words, self._environment = cli, words, environment
        self.seen = ""

    async def run(
        self, waits_for: str, then: Callable[[], Awaitable[None]], answer: str = "", *, interrupt_at: str = ""
    ) -> int:
        """Do something once a text was seen, and interrupt it once another one was; the exit code."""
        master, slave = pty.openpty()
        deadline = time.monotonic() + SECONDS
        terminal = Path(os.ttyname(slave))
        variables = self._cli.variables(TERM="xterm", COLUMNS="100", **self._environment)
        process = fork_command(self._words, variables, self._cli.home, given=terminal, out=terminal, err=terminal)
        held = os.fdopen(slave, "rb", buffering=0)  # until the command has it open, too: else it would be hung up
        done = False
        try:
            while chunk := await asyncio.to_thread(read_terminal, master, deadline):
                held.close()
                self.seen += chunk
                if not done and waits_for in self.seen:
                    done = True
                    await then()
                    os.write(master, answer.encode())
                if interrupt_at and interrupt_at in self.seen:
                    process.send_signal(signal.SIGINT)
                    interrupt_at = ""
            assert done, self.seen
            await until(lambda: process.returncode is not None, "the command to end")
            assert process.returncode is not None
            return process.returncode
        finally:
            held.close()
            os.close(master)
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)


def read_terminal(master: int, deadline: float) -> str:
    """What comes next on the terminal whose other side a program has; "" once that has ended."""
    poll = select.poll()
    poll.register(master, select.POLLIN)
    if not poll.poll(max(0, deadline - time.monotonic()) * 1_000):
        raise TimeoutError("nothing more came on the terminal")
    try:
        return os.read(master, 65_536).decode(errors="replace")
    except OSError:  # the other side has ended
        return ""


async def nothing() -> None:
    """What is done where only an answer is waited for."""
