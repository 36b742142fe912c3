"""The clock, broken on purpose: for each mutant, a meeting shows how it goes wrong."""

from contextlib import ExitStack

import pytest

from shared.store import Store
from tests.models.clock.mutants import MUTANTS
from tests.models.clock.verdict import verdict
from tests.models.clock.world import World
from tests.models.simulated.fixed import replaced

pytestmark = [pytest.mark.mutants, pytest.mark.native]


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_mutant_is_found(store: Store, name: str) -> None:
    mutant, world = MUTANTS[name], World(store)
    with ExitStack() as stack:
        for target, attribute, value in mutant.changes:
            stack.enter_context(replaced(target, attribute, value))
        with pytest.raises(AssertionError):
            await mutant.meeting(world)
    found = await verdict(world)
    assert any(mutant.complaint in each for each in found), found
