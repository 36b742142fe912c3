"""Storms of whole processes on real servers: whatever dies, sleeps or starts again, every promise is kept.

`make storm STORMS=tests/chaos/test_storm.py ARGS="--seconds=600 --seed=7"` makes storms for so long. Each has a seed of
its own, from the given one on.
"""

import asyncio
import random

import pytest

from tests.chaos.outages import fewer
from tests.chaos.storm.customers import DEVICES, QUEUE, Planners, Pushers
from tests.chaos.storm.fleet import Fleet
from tests.chaos.storm.troubles import Troubles
from tests.chaos.storm.verdict import judge_jobs, judge_schedules
from tests.e2e.clocks import declared
from tests.e2e.house import House

pytestmark = [pytest.mark.chaos, pytest.mark.native, pytest.mark.storm, pytest.mark.usefixtures("hasty")]

STORM_SECONDS = 60.0
_SETTLED_WITHIN = 180.0


async def test_every_promise_is_kept_in_storms(house: House, storm_seconds: float, seed: int) -> None:
    deadline = asyncio.get_running_loop().time() + storm_seconds
    while (left := deadline - asyncio.get_running_loop().time()) > 0:
        await weather_storm(house, seed, min(left, STORM_SECONDS))
        house.new_app()
        seed += 1


async def weather_storm(house: House, seed: int, seconds: float) -> None:
    """One storm with all that is asked for in it, and its verdict."""
    print(f"--- a storm of {seconds:.0f} s with --seed={seed}", flush=True)
    await house.devices(DEVICES)
    await declared(house, QUEUE)
    chance = random.Random(seed)
    fleet = Fleet(house)
    troubles = Troubles(fleet, random.Random(chance.random()))
    pushers = Pushers(house, random.Random(chance.random()))
    planners = Planners(house, random.Random(chance.random()))
    await fleet.launch()
    async with asyncio.TaskGroup() as group:
        group.create_task(troubles.make(seconds))
        group.create_task(pushers.post(seconds))
        group.create_task(planners.schedule(seconds))
    await fewer(house, 0, _SETTLED_WITHIN)
    jobs = await judge_jobs(house, pushers.jobs)
    await fleet.end_all()
    times = await judge_schedules(house, planners)
    print(f"{len(troubles.told)} troubles; jobs: {dict(jobs)}; messages by how often they came: {dict(times)}")
