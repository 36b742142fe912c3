"""Schedulers whose wall clocks are wrong or jump: the database's time is the only one that counts.

The database and the receiver have the true clock of this machine.
"""

import asyncio
from contextlib import suppress
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median

import pytest

from services.embedded.processes import free_port
from tests.chaos.outages import check_came, check_not_early, check_nothing_counted
from tests.chaos.test_clock_killed import QUEUE, series, settled
from tests.e2e.clocks import Receiver, crowd, measured, receiving
from tests.e2e.house import House
from tests.stack.faketime import WallClock
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

_OFF = {"ahead": 60.0, "behind": -60.0, "jumping": 0.0}
_TICK = {"CARILLON_SCHEDULER_TICK_SECONDS": "0.5"}


@pytest.mark.alone
async def test_wall_clocks_are_a_minute_off_and_jump(house: House, tmp_path: Path) -> None:
    clocks = {name: WallClock(tmp_path / name) for name in _OFF}
    ports = {name: free_port() for name in _OFF}
    for name, seconds in _OFF.items():
        clocks[name].set(seconds)
    running = [
        await house.start("scheduler", CARILLON_HEALTH_PORT=str(ports[name]), **_TICK, **clock.environment)
        for name, clock in clocks.items()
    ]
    jumps = asyncio.create_task(jumping(clocks["jumping"]))
    async with receiving(house, QUEUE) as receiver:
        all_ = [*await crowd(house, 30, 50, after=5, within=6), *await series(house)]
        await receiver.got(1_500 + 16 * 5)
        jumps.cancel()
        with suppress(asyncio.CancelledError):
            await jumps
        for name, port in ports.items():
            assert await measured(port, "occurrences_fired_total", outcome="fired") > 0, f"{name} has fired nothing"
        clocks["jumping"].set(300)
        for name, seconds in {**_OFF, "jumping": 300}.items():
            await until(partial(tells, ports[name], seconds), f"{name}'s metric to tell the skew")
        await settled(house, receiver, all_, running)
    check_came(receiver, all_)
    assert set(receiver.times.values()) == {1}
    check_not_early(receiver)
    check_punctual(receiver)
    await check_nothing_counted(house, all_)


async def jumping(clock: WallClock) -> None:
    """To and fro by a minute, an hour and a year, several times a second."""
    for seconds in cycle([60, -60, 3_600, 0, -3_600, 365 * 86_400]):
        clock.set(seconds)
        await asyncio.sleep(0.17)


async def tells(port: int, seconds: float) -> bool:
    """Whether the process's metric says that its clock is so many seconds ahead of the database's."""
    return abs(await measured(port, "clock_skew_seconds") - seconds) < 1


def check_punctual(receiver: Receiver) -> None:
    """A clock that is followed shows as a minute. On a busy machine seconds are not told from what is right."""
    late = sorted((each.came - each.due).total_seconds() for each in receiver.all)
    print(f"lateness: median {median(late) * 1000:.0f} ms, at most {late[-1] * 1000:.0f} ms")
    assert late[-1] < 50
