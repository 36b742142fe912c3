"""What an idle scheduler asks of the store: a promise to whoever pays for the database."""

import asyncio
import time

import pytest

from services.wiring.process import build_service
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.runtime.configuration import load
from shared.runtime.loops import Periodic
from shared.runtime.metrics import LOOP_RUNS
from tests.commands import count_commands
from tests.queues import QUEUES
from tests.stack import Endpoints
from tests.waiting import until

pytestmark = [pytest.mark.native, pytest.mark.alone]

SECONDS = 10.0


def runs_of(loop: str) -> float:
    return float(LOOP_RUNS.labels(loop, "ok")._value.get())


async def first_looks_over(loops: list[str], runs_before: list[float]) -> None:
    """Every loop looks once at all that it cares for."""
    before = list(zip(loops, runs_before, strict=True))
    await until(lambda: all(runs_of(loop) > runs for loop, runs in before), "the first looks")


async def test_an_idle_scheduler_asks_twice_a_second(
    stack: Endpoints,
    mongo_database: str,
    rabbit_vhost: str,
    push_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_for = count_commands(monkeypatch)
    environment = stack.environment(mongo_database, rabbit_vhost, push_database)
    servers = Servers(load(environment), service="scheduler")
    try:
        await servers.store.setup()
        await servers.broker.setup(QUEUES)
        components = build_service("scheduler", Rooms(servers))
        loops = [component.name for component in components if isinstance(component, Periodic)]
        before = [runs_of(loop) for loop in loops]
        for component in components:
            await component.start()
        await first_looks_over(loops, before)
        asked_for.counts.clear()
        asked_for.by_collection.clear()
        began = time.monotonic()
        await asyncio.sleep(SECONDS)
        asked, seconds = asked_for.counts.total(), time.monotonic() - began
        for component in components:
            await component.stop()
    finally:
        await servers.close()
    # One for claims each second; the rest is upkeep.
    # What comes round once in a while may fall on both ends of this time.
    assert 0 < asked <= 2 * seconds + 5, asked_for.by_collection
    assert asked_for.counts["find"] > 0
