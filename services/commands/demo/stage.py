"""The demo's Carillon, which dies by SIGKILL in the middle of its work, and how an act shows a promise."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from services.embedded import processes
from services.embedded.instance import Instance, find_running
from services.embedded.processes import ProcessMark
from shared.core.errors import Unavailable
from shared.runtime import configuration
from shared.runtime.settings import Settings

_START_SECONDS = 90.0
_GRACE_SECONDS = 30.0
_DEATH_SECONDS = 10.0
_POLL_SECONDS = 0.05
_LOOK_SECONDS = 0.25


class Victim:
    """`carillon up` in a process of its own: it starts with a fault that kills it, and starts again after its death."""

    instance: Instance

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.log = folder / "carillon.log"
        self._folder = folder
        self._mark: ProcessMark | None = None

    @property
    def pid(self) -> int:
        return self._mark.pid if self._mark is not None else 0

    @property
    def is_dead(self) -> bool:
        return self._mark is not None and not processes.is_alive(self._mark)

    async def start(self, fault: str = "") -> None:
        """Start it, with a fault armed (`shared.runtime.faults`), and wait until it serves. Raises `Unavailable`."""
        file = self._folder / "demo.toml"
        file.write_text(configuration.describe(self.settings), "utf-8", newline="")
        others = {name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")}
        self._mark = mark = processes.spawn(
            [sys.executable, "-m", "services", "--config", str(file), "up", "--data-dir", str(self._folder)],
            mark_file=self._folder / "carillon.mark",
            log=self.log,
            env=others | {"CARILLON_FAULT": fault},
            signal_if_orphaned=signal.SIGTERM,
        )

        def has_begun() -> bool:
            running = find_running(self._folder)
            return self.is_dead or (running is not None and running.process == mark)

        if not await becomes_true(has_begun, seconds=_START_SECONDS):
            raise Unavailable(f"Carillon did not start within {_START_SECONDS:g} s")
        if (running := find_running(self._folder)) is None:
            raise Unavailable("Carillon has ended by itself")
        self.instance = running

    async def revive(self, say: Callable[[str], object], circumstances: str, fault: str = "") -> None:
        """Report its death, and start it again with a fault armed. Raises `Unavailable`."""
        say(f"  ☠ process {self.pid} was killed (SIGKILL) {circumstances}")
        await self.start(fault)
        say(f"    started again as process {self.pid}")

    async def watch(
        self, poll: Callable[[], Awaitable[bool]], on_death: Callable[[], Awaitable[None]], *, seconds: float
    ) -> tuple[bool, bool]:
        """Poll until `poll` returns true. Returns whether that happened in time, and whether the victim died.

        Raises `Unavailable` if `poll` does while the victim is alive.
        """
        died, deadline = False, time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.is_dead:
                died = True
                await on_death()
            try:
                if await poll():
                    return True, died
            except Unavailable:
                # A process's connections end before it does.
                if not await becomes_true(lambda: self.is_dead, seconds=_DEATH_SECONDS):
                    raise
            await asyncio.sleep(_LOOK_SECONDS)
        return False, died

    async def stop(self) -> None:
        if self._mark is not None:
            ending = asyncio.to_thread(processes.end, self._mark, grace_seconds=_GRACE_SECONDS)
            await asyncio.shield(ending)


async def becomes_true(condition: Callable[[], bool], *, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True


def prove(promise: str, *checks: tuple[bool, str]) -> bool:
    """Print the promise as kept, or else the sentence of each check that is true as a fault; returns which."""
    faults = [sentence for is_wrong, sentence in checks if is_wrong]
    for sentence in faults:
        click.echo(f"  {click.style('✗', fg='red', bold=True)} {sentence}", err=True)
    if not faults:
        click.echo(f"  {click.style('✓', fg='green', bold=True)} {promise}")
    return not faults
