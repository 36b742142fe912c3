"""Random orders of events on the real store: whatever dies, sleeps or is taken back, the clock keeps its promises."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from shared.store import Store
from tests.models.clock.machine import ClockMachine

pytestmark = pytest.mark.native

SETTINGS = settings(
    max_examples=8,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    # To explain a failure takes as long as to find it, and tells less than its steps.
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)

Machines = Callable[[], ClockMachine]


@pytest.fixture
def machines(mongo_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    chance = Random()
    monkeypatch.setattr("shared.clock.schedules.fresh_generation", lambda: f"{chance.getrandbits(64):016x}")
    monkeypatch.setattr("shared.clock.settlement.random", chance)
    with asyncio.Runner() as runner:
        store = runner.run(opened(mongo_database))
        yield partial(ClockMachine, runner, store, chance)
        runner.run(store.close())


async def opened(url: str) -> Store:
    store = Store.open(url)
    await store.setup()
    return store


def run(machines: Machines, chosen: settings) -> None:
    # It is called, and nothing else; only its annotation asks for a class.
    run_state_machine_as_test(cast("type[ClockMachine]", machines), settings=chosen)


def test_the_clock_keeps_its_promises(machines: Machines) -> None:
    run(machines, SETTINGS)


@pytest.mark.slow
def test_the_clock_keeps_its_promises_for_long(machines: Machines) -> None:
    run(machines, settings(SETTINGS, max_examples=200, stateful_step_count=50, derandomize=False, print_blob=True))
