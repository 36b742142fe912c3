"""As many seeds as there is time for (`make storm`)."""

import pytest

from tests.models.messages.mutants import MUTANTS
from tests.models.messages.world import World
from tests.models.simulated.worlds import SeedsFrom

pytestmark = [pytest.mark.native, pytest.mark.storm]


def test_messages_keep_their_promises_from_any_seed(seeds: SeedsFrom) -> None:
    seeds.keep_the_promises(World)


def test_mutants_are_found_from_any_seed(seeds: SeedsFrom) -> None:
    seeds.show(list(MUTANTS.values()))
