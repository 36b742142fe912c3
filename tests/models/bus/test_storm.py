"""As many seeds as there is time for (`make storm`)."""

import pytest

from tests.models.bus.mutants import MUTANTS
from tests.models.bus.world import World
from tests.models.simulated.worlds import SeedsFrom

pytestmark = [pytest.mark.native, pytest.mark.storm]


def test_the_bus_keeps_its_promises_from_any_seed(seeds: SeedsFrom) -> None:
    seeds.keep_the_promises(World)


def test_its_mutants_are_found_from_any_seed(seeds: SeedsFrom) -> None:
    seeds.show(list(MUTANTS.values()))
