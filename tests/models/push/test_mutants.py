"""The protocol, broken on purpose: for each mutant, a seed shows how it goes wrong."""

import pytest

from tests.models.push.mutants import MUTANTS
from tests.models.push.world import World
from tests.models.simulated.database import Database

pytestmark = [pytest.mark.mutants, pytest.mark.native]

ENOUGH = 200
"""Seeds to look through where the known one does not show it any more, since the product takes other steps by now.
Then note the seed that does: this search would cost its time for ever."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(database: Database, name: str) -> None:
    mutant = MUTANTS[name]
    found = mutant.find(database, (mutant.seed, *range(ENOUGH)))
    assert found is not None, "no seed shows it"
    _, failure = found
    assert failure.promise in mutant.breaks, str(failure)


def test_a_failure_prints_its_seed_and_the_way_to_it(database: Database) -> None:
    mutant = MUTANTS["no fence"]
    found = mutant.find(database, [mutant.seed])
    assert found is not None
    first, weather, *steps = str(found[1]).splitlines()
    assert first.startswith(f"seed {mutant.seed}: {found[1].promise}")
    assert weather.startswith("Weather(")
    assert any("batches.take" in step for step in steps)


@pytest.mark.slow
def test_the_product_is_clean_where_mutants_are_found(database: Database) -> None:
    for mutant in MUTANTS.values():
        World(database, mutant.seed, mutant.weather).run()
