"""What befalls the processes and their servers."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from tests import stack as servers
from tests.chaos.storm.fleet import Fleet

SERVERS = ("kafka", "mongo", "postgres", "rabbitmq")
_CALM = (0.2, 3.0)
_FROZEN = (0.5, 9.0)


class Troubles:
    """One trouble after the other, with short pauses, as chance has it; `told` names each."""

    def __init__(self, fleet: Fleet, chance: Random) -> None:
        self._fleet = fleet
        self._chance = chance
        self.told: list[str] = []
        self._kinds: dict[Callable[[], Awaitable[None]], int] = {
            self._kill: 6,
            self._freeze: 5,
            self._end: 3,
            self._restart_server: 2,
            self._freeze_server: 1,
        }

    async def make(self, seconds: float) -> None:
        """Make trouble for so long. Afterwards nothing is frozen, and all servers run."""
        kinds, weights = list(self._kinds), list(self._kinds.values())
        async with asyncio.TaskGroup() as self._thaws:
            deadline = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(self._chance.uniform(*_CALM))
                [trouble] = self._chance.choices(kinds, weights)
                await trouble()

    async def _kill(self) -> None:
        number = self._fleet.draw(self._chance)
        self._tell(f"kill {self._fleet.name(number)}")
        await self._fleet.kill(number)

    async def _end(self) -> None:
        number = self._fleet.draw(self._chance)
        self._tell(f"end {self._fleet.name(number)}")
        await self._fleet.end(number)

    async def _freeze(self) -> None:
        number, seconds = self._fleet.draw(self._chance), self._chance.uniform(*_FROZEN)
        self._tell(f"freeze {self._fleet.name(number)} for {seconds:.1f} s")
        self._fleet.freeze(number)
        self._thaws.create_task(self._thaw(number, seconds))

    async def _thaw(self, number: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._fleet.wake(number)

    async def _restart_server(self) -> None:
        server, kill_it = self._chance.choice(SERVERS), self._chance.random() < 0.5
        self._tell(f"{'kill' if kill_it else 'stop'} {server} and start it again")
        await asyncio.to_thread(servers.restart, server, kill_it=kill_it)

    async def _freeze_server(self) -> None:
        server, seconds = self._chance.choice(SERVERS), self._chance.uniform(*_FROZEN)
        self._tell(f"freeze {server} for {seconds:.1f} s")
        servers.pause(server)
        try:
            await asyncio.sleep(seconds)
        finally:
            servers.unpause(server)

    def _tell(self, trouble: str) -> None:
        self.told.append(trouble)
        print(trouble, flush=True)
