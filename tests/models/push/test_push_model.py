"""Random orders of events on the real classes: whatever dies, is lost or comes twice, push keeps its promises."""

import pytest

from tests.models.push.weather import Weather
from tests.models.push.world import World
from tests.models.simulated.database import Database
from tests.tiers import and_rarely

pytestmark = pytest.mark.native

SEEDS = 200
AT_ONCE = 20
SEEING = (2, 3, 4, 19)
"""Seeds that see everything together; they keep the promises, too."""


@pytest.mark.parametrize("first", and_rarely(rarely=range(0, SEEDS, AT_ONCE)))
def test_push_keeps_its_promises(database: Database, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        World(database, seed).run()


@pytest.mark.slow
def test_a_seed_takes_the_same_way_again(database: Database) -> None:
    assert World(database, 0).run() == World(database, 0).run()


def test_in_fair_weather_nothing_is_tried_twice(database: Database) -> None:
    for seed in range(2):
        steps = "\n".join(World(database, seed, Weather(length=100)).run().trace)
        assert "lane.commit" in steps
        assert "lane.fence" not in steps
        assert "put_off" not in steps


def test_some_seeds_keep_them_and_see_what_the_protocol_is_for(database: Database) -> None:
    """Lest a change of the model takes the troubles out of it."""
    steps = "\n".join(line for seed in SEEING for line in World(database, seed).run().trace)
    seen = {
        sign: sign in steps
        for sign in (
            "is killed",
            "sleeps until",
            "lane.fence",
            "batches.disown",
            "batches.advance",
            "batches.put_back",
            "occurrences.complete",
            "done, no answer",
            "[late]",
            "wants to stop",
            "(the group)",
            "circuitbreak",
            "batches.fail",
            "groups.mark_complete",
            "feedbacks.flush",
            "mail.send",
        )
    }
    assert all(seen.values()), seen
