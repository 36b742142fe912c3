"""The Carillon of the demo: `carillon up` in a process of its own, which dies by SIGKILL in the middle of its work."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from services.embedded import processes
from services.embedded.instance import Instance, find_running
from services.embedded.processes import ProcessMark
from shared.domain.errors import Unavailable
from shared.runtime import configuration
from shared.runtime.settings import Settings

_START_SECONDS = 90.0
_GRACE_SECONDS = 30.0
_DEATH_SECONDS = 10.0
_POLL_SECONDS = 0.05
_LOOK_SECONDS = 0.25


class Victim:
    """It starts with a fault that kills it, and starts again after its death."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        api, health = (
            replace(section, port=section.port or processes.free_port()) for section in (settings.api, settings.health)
        )
        self.settings = replace(settings, api=api, health=health)
        self._folder = folder
        self._log = folder / "carillon.log"
        self._mark: ProcessMark | None = None
        self.instance: Instance

    @property
    def pid(self) -> int:
        """The process, dead or alive."""
        return self._mark.pid if self._mark is not None else 0

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended."""
        return self._mark is not None and not processes.is_alive(self._mark)

    @property
    def last_words(self) -> str:
        """The end of its log."""
        return processes.tail(self._log)

    async def start(self, fault: str = "") -> None:
        """Start it, with a fault armed (`shared.runtime.faults`), and wait until it serves. Raises `Unavailable`."""
        file = self._folder / "demo.toml"
        file.write_text(configuration.describe(self.settings), "utf-8", newline="")
        others = {name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")}
        self._mark = processes.spawn(
            [sys.executable, "-m", "services", "--config", str(file), "up", "--data-dir", str(self._folder)],
            mark_file=self._folder / "carillon.mark",
            log=self._log,
            env=others | {"CARILLON_FAULT": fault},
            signal_if_orphaned=signal.SIGTERM,
        )
        try:
            async with asyncio.timeout(_START_SECONDS):
                while (running := find_running(self._folder)) is None or running.process != self._mark:
                    if self.is_dead:
                        raise Unavailable("Carillon has ended by itself")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise Unavailable(f"Carillon did not start within {_START_SECONDS:g} s") from None
        self.instance = running

    async def revive(self, say: Callable[[str], object], circumstances: str, fault: str = "") -> None:
        """Report its death, and start it again with a fault armed. Raises `Unavailable`."""
        say(f"☠ process {self.pid} was killed (SIGKILL) {circumstances}")
        await self.start(fault)
        say(f"  started again as process {self.pid}")

    async def watch(
        self, poll: Callable[[], Awaitable[bool]], on_death: Callable[[], Awaitable[None]], *, seconds: float
    ) -> tuple[bool, bool]:
        """Poll until `poll` returns true. Returns whether that happened in time, and whether the victim died.

        Raises `Unavailable` if `poll` does while the victim is alive.
        """
        died = False
        try:
            async with asyncio.timeout(seconds):
                while True:
                    if self.is_dead:
                        died = True
                        await on_death()
                    try:
                        if await poll():
                            return True, died
                    except Unavailable:
                        if not await self._dies():
                            raise
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            return False, died

    async def _dies(self) -> bool:
        """Whether it ends within some seconds: a process's connections end before it does."""
        try:
            async with asyncio.timeout(_DEATH_SECONDS):
                while not self.is_dead:
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """End it, if it runs, and wait for that."""
        if self._mark is not None:
            ending = asyncio.to_thread(processes.end, self._mark, grace_seconds=_GRACE_SECONDS)
            await asyncio.shield(ending)
