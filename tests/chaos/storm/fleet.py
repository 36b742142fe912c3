"""The processes of a storm: another one takes the place of whichever goes."""

import itertools
import signal
from random import Random

from tests.e2e.house import House, Process

SERVICES = ("worker", "worker", "scheduler", "scheduler")


class Fleet:
    """Workers and schedulers that run, by the number of their place."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._places: dict[int, tuple[str, Process]] = {}
        self._numbers = itertools.count()

    async def launch(self) -> None:
        """Start one process for each of `SERVICES`."""
        for service in SERVICES:
            await self._spawn(service)

    def draw(self, chance: Random) -> int:
        """The number of some process."""
        return chance.choice(sorted(self._places))

    def name(self, number: int) -> str:
        return f"{self._places[number][0]} {number}"

    async def kill(self, number: int) -> None:
        """End a process without a word, and start another."""
        service, process = self._places.pop(number)
        await self._house.kill(process)
        await self._spawn(service)

    async def end(self, number: int) -> None:
        """End a process in good order, and start another."""
        service, process = self._places.pop(number)
        await self._end(process)
        await self._spawn(service)

    def freeze(self, number: int) -> None:
        self._places[number][1].send(signal.SIGSTOP)

    def wake(self, number: int) -> None:
        """Let a frozen process go on, if it is still there."""
        if number in self._places:
            self._places[number][1].send(signal.SIGCONT)

    async def end_all(self) -> None:
        """End every process in good order: none has ended by itself, and each ends well."""
        for _, process in self._places.values():
            await self._end(process)
        self._places.clear()

    async def _end(self, process: Process) -> None:
        process.send(signal.SIGCONT)
        # Before it is ready, nothing in it hears the signal.
        well = {0} if '"ready"' in process.log else {0, -signal.SIGTERM}
        process.send(signal.SIGTERM)
        assert await process.gone() in well, process.log

    async def _spawn(self, service: str) -> None:
        # Nobody waits until it is ready: the servers that it needs may be away.
        self._places[next(self._numbers)] = (service, await self._house.spawn(service))
