"""As many seeds as there is time for (`make storm`)."""

import time

import pytest

from tests.flow.bus_model.mutants import MUTANTS
from tests.flow.bus_model.world import World
from tests.flow.simulated.database import Database
from tests.flow.simulated.seeds import seeds_until

pytestmark = [pytest.mark.native, pytest.mark.storm]

_FOR_MUTANTS = 0.2


def test_the_bus_keeps_its_promises_from_any_seed(
    database: Database, seed: int, storm_seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    ends, done = time.monotonic() + storm_seconds * (1 - _FOR_MUTANTS), 0
    for each in seeds_until(seed, ends):
        World(database, each).run()
        done += 1
    with capsys.disabled():
        print(f"\nthe bus: {done:,} seeds from {seed} on keep the promises")
    assert done


def test_its_mutants_are_found_from_any_seed(
    database: Database, seed: int, storm_seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which of them depends on the time: it is told, and what is found has to be the promise that it breaks."""
    for mutant in MUTANTS.values():
        ends = time.monotonic() + storm_seconds * _FOR_MUTANTS / len(MUTANTS)
        found = mutant.find(database, seeds_until(seed, ends))
        with capsys.disabled():
            print(f"\n{mutant.what}: {f'found by seed {found[0]}' if found else 'not found in time'}", end="")
        assert found is None or found[1].promise in mutant.breaks, str(found[1])
