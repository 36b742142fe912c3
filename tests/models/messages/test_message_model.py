"""Random orders of events on the real classes: whatever dies, is lost or comes twice, messages keep their promises."""

import pytest

from tests.models.messages.weather import MessageWeather
from tests.models.messages.world import World
from tests.models.simulated.database import Database
from tests.tiers import and_rarely

pytestmark = pytest.mark.native

SEEDS = 60
AT_ONCE = 10
SEEING = (25, 37, 57)
"""Seeds that see everything together; they keep the promises, too."""


@pytest.mark.parametrize("first", and_rarely(rarely=range(0, SEEDS, AT_ONCE)))
def test_messages_keep_their_promises(database: Database, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        World(database, seed).run()


@pytest.mark.slow
def test_a_seed_takes_the_same_way_again(database: Database) -> None:
    assert World(database, 0).run() == World(database, 0).run()


def test_a_call_that_waits_for_a_connection_does_not_outlast_the_clock(database: Database) -> None:
    """The database's clock is set back meanwhile, so that the call's instant seems to lie ahead again."""
    World(database, 3, MessageWeather(length=300, crowded=True, another_clock=0.02, slow=0.6)).run()


@pytest.mark.parametrize("seed", and_rarely(0, 2, rarely=(1, 3, 4, 5)))
def test_workers_that_share_blocks_keep_the_rate(database: Database, seed: int) -> None:
    weather = MessageWeather(length=200, crowded=True, shared=True, dies=0.01, late=0.01, another_clock=0.003, lag=0.1)
    World(database, seed, weather).run()


def test_who_was_about_to_close_a_job_does_not_undo_its_retry(database: Database) -> None:
    World(database, 2, MessageWeather(length=600, crowded=True, click=0.15)).run()


def test_some_seeds_keep_them_and_see_what_the_protocol_is_for(database: Database) -> None:
    """Lest a change of the model takes the troubles out of it."""
    steps = "\n".join(line for seed in SEEING for line in World(database, seed).run().trace)
    signs = (
        "is killed",
        "sleeps until",
        "batches.disown",
        "provider.send",
        "messages.fold",
        "message_batches.put_back",
        "reopening.reopen_batches",
        "done, no answer",
        "[late]",
    )
    seen = {sign: sign in steps for sign in signs}
    assert all(seen.values()), seen
