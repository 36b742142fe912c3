"""Random orders of events in larger worlds: whatever goes wrong at once, every batch goes out once and settles."""

import pytest

from tests.domain.protocol.explore import start
from tests.domain.protocol.strolls import stroll
from tests.domain.protocol.world import Faults, Rules, World

RUNS = 300
TROUBLE = Faults(crash=3, cut=3, purge=2, double=2, silent=3, lag=2, expire=2, refuse=2, chores=12, clicks=3)


def rules_of(seed: int) -> Rules:
    parts = 1 + seed // 12 % 3
    return Rules(slots=1 + seed % 3, attempts=(0, 3)[seed // 3 % 2], self_recovery=bool(seed // 6 % 2), parts=parts)


def world_of(seed: int) -> World:
    if seed % 2:
        return start(rules_of(seed), TROUBLE, devices=5 + seed % 4, workers=3, planners=2, users=1)
    return start(rules_of(seed), TROUBLE, batches=2 + seed % 5, workers=3, users=1)


@pytest.mark.parametrize("first", range(0, 8 * RUNS, RUNS))
def test_random_orders_of_events_keep_the_promises(first: int) -> None:
    steps = 0
    for seed in range(first, first + RUNS):
        walked, found = stroll(world_of(seed), rules_of(seed), seed)
        assert found is None, f"seed {seed}: {found}"
        steps += walked
    assert steps > 50 * RUNS


def test_a_seed_takes_the_same_way_again() -> None:
    assert stroll(world_of(7), rules_of(7), 7) == stroll(world_of(7), rules_of(7), 7)
