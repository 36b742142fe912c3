"""A world is everything of one seed: the same for all models here, but for what is in it."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from random import Random
from typing import Any, NamedTuple

import pytest
from msgspec import Struct

from tests.models.simulated.database import Database
from tests.models.simulated.fixed import fixed
from tests.models.simulated.seeds import find_failing, seeds_until
from tests.models.simulated.simulation import Simulation

_FOCUSED = 8
_TURNS_OF_THE_END = 20
_FOR_MUTANTS = 0.2


class Broken(Exception):
    """A promise is broken: which, and how."""

    def __init__(self, promise: StrEnum, detail: object) -> None:
        super().__init__(f"{promise}: {detail}")
        self.promise = promise


class Failure(AssertionError):
    """A broken promise, with the seed and the way to it."""

    def __init__(self, seed: int, broken: Broken, weather: object, trace: Iterable[str]) -> None:
        super().__init__("\n".join([f"seed {seed}: {broken}", str(weather), *trace]))
        self.promise = broken.promise


class Run(Struct, frozen=True):
    """The choices and the steps of a seed."""

    choices: int
    weather: Any
    trace: list[str]


class Troubles(Struct, frozen=True, kw_only=True):
    """The chance of each trouble is a field of a model's weather."""

    focus: str = ""

    def strikes(self, trouble: str, chance: Random, *, at: str = "") -> bool:
        """Whether this trouble comes now, at this step."""
        rate: float = getattr(self, trouble)
        if self.focus and at.startswith(self.focus):
            rate *= _FOCUSED
        return rate > 0 and chance.random() < rate


class SimulatedWorld(ABC):
    """A world of a model, which adds its beginning, its choices, its promises, and its rest."""

    promises: Any
    slots = 2

    def __init__(self, seed: int, weather: Any, draw: Callable[[Random], Any]) -> None:
        self.chance = Random(seed)
        self.seed = seed
        self.weather = weather or draw(self.chance)
        self.simulation = Simulation(self.chance, self.weather)
        self.simulation.choose = self._choose
        self.simulation.rest = self._rest
        self._finished: asyncio.Future[None] | None = None
        self._users = 0
        self._over_at: float | None = None

    def run(self) -> Run:
        """All of it. Raises `Failure`."""
        simulation = self.simulation
        with fixed(self.seed, self.slots, simulation.loop.time, self.promises.log):
            try:
                self._begin()
                simulation.loop.run_until_complete(self._finish())
            except Broken as broken:
                raise Failure(self.seed, broken, self.weather, iter(simulation.trace)) from None
            finally:
                self._end()
        return Run(simulation.choices, self.weather, list(simulation.trace))

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _choose(self) -> bool: ...

    @abstractmethod
    def _rest(self) -> None: ...

    async def _finish(self) -> None:
        self._finished = asyncio.get_running_loop().create_future()
        await self._finished

    def _close(self) -> None:
        self.promises.check_end()
        assert self._finished is not None
        if not self._finished.done():
            self._finished.set_result(None)

    def _clear_up(self) -> None:
        """The troubles end."""
        self._over_at = self.simulation.loop.now
        self.simulation.weather = self.weather.clear_up()
        self.simulation.wake_all()
        self.simulation.trace.add(self._over_at, "", "all troubles end")

    def _end(self) -> None:
        """Nothing may be left of it, whatever it came to."""
        loop = self.simulation.loop
        for process in list(self.simulation.processes):
            process.die()
        for _ in range(_TURNS_OF_THE_END):
            loop.call_soon(loop.stop)
            loop.run_forever()
        loop.close()


class Mutant(NamedTuple):
    """A fault: its name; the promises of which one breaks first; the changes that make it (target, name, other value);
    and a seed that shows it, in the weather that it draws or in this one."""

    world: Callable[..., SimulatedWorld]
    what: str
    breaks: frozenset[StrEnum]
    changes: Sequence[tuple[Any, str, Any]]
    seed: int
    weather: Any

    def find(self, database: Database, seeds: Iterable[int]) -> tuple[int, Failure] | None:
        """The first of these seeds that shows it, and how."""
        return find_failing(seeds, self.changes, lambda seed: self.world(database, seed, self.weather).run(), Failure)


def mutants_of(world: Callable[..., SimulatedWorld], promise: type[StrEnum]) -> Callable[..., Mutant]:
    def make(what: str, breaks: str, *changes: tuple[Any, str, Any], seed: int = 0, weather: Any = None) -> Mutant:
        return Mutant(world, what, frozenset(promise[name] for name in breaks.split()), changes, seed, weather)

    return make


class SeedsFrom(NamedTuple):
    """As many seeds as there is time for (`make storm`)."""

    database: Database
    seed: int
    seconds: float
    capsys: pytest.CaptureFixture[str]

    def keep_the_promises(self, world: Callable[..., SimulatedWorld]) -> None:
        ends, done = time.monotonic() + self.seconds * (1 - _FOR_MUTANTS), 0
        for each in seeds_until(self.seed, ends):
            world(self.database, each).run()
            done += 1
        with self.capsys.disabled():
            print(f"\n{done:,} seeds from {self.seed} on keep the promises")
        assert done

    def show(self, mutants: Sequence[Mutant]) -> None:
        """Which of them depends on the time: it is told, and what is found has to be the promise that it breaks."""
        for mutant in mutants:
            ends = time.monotonic() + self.seconds * _FOR_MUTANTS / len(mutants)
            found = mutant.find(self.database, seeds_until(self.seed, ends))
            with self.capsys.disabled():
                print(f"\n{mutant.what}: {f'found by seed {found[0]}' if found else 'not found in time'}", end="")
            assert found is None or found[1].promise in mutant.breaks, str(found[1])
