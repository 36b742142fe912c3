"""Random orders of events on the real classes: whatever dies, is lost or comes twice, the bus keeps its promises."""

import pytest

from tests.models.bus.weather import BusWeather
from tests.models.bus.world import World
from tests.models.simulated.database import Database
from tests.tiers import and_rarely

pytestmark = pytest.mark.native

SEEDS = 40
AT_ONCE = 5
SEEING = (29, 38)
"""Seeds that see everything together; they keep the promises, too."""


@pytest.mark.parametrize("first", and_rarely(rarely=range(0, SEEDS, AT_ONCE)))
def test_the_bus_keeps_its_promises(database: Database, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        World(database, seed).run()


@pytest.mark.parametrize("first", and_rarely(0, rarely=range(2, 10, 2)))
def test_one_of_each_process_keeps_them_whenever_it_is_killed(database: Database, first: int) -> None:
    for seed in range(first, first + 2):
        World(database, seed, BusWeather(length=250, alone=True, dies=0.05)).run()


@pytest.mark.slow
def test_a_seed_takes_the_same_way_again(database: Database) -> None:
    assert World(database, 0).run() == World(database, 0).run()


def test_some_seeds_keep_them_and_see_what_the_protocol_is_for(database: Database) -> None:
    """Lest a change of the model takes the troubles out of it."""
    steps = "\n".join(line for seed in SEEING for line in World(database, seed).run().trace)
    signs = (
        "is killed",
        "sleeps until",
        "rebalance",
        "FlushResult.OUTDATED",
        "FlushResult.OVERTAKEN",
        "bus_wake_ups.hand_over(",
        "bus_wake_ups.hand_over_due(",
        "receiver.call",
        "bus_deliveries.settle",
        "a user wants to remove",
        "a user wants to suspend",
        "done, no answer",
        "[late]",
        "log.ends",
    )
    seen = {sign: sign in steps for sign in signs}
    assert all(seen.values()), seen
