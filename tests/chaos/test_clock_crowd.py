"""Four schedulers race for one second in which a crowd of instants is due."""

import asyncio

import pytest

from services.embedded.processes import free_port
from tests.chaos.outages import check_came, check_not_early
from tests.chaos.test_clock_killed import QUEUE, gone, settled
from tests.e2e.clocks import crowd, measured, receiving
from tests.e2e.house import House

pytestmark = [pytest.mark.chaos, pytest.mark.native]

_ENTRIES = 8_000
# Alone on two cores it takes 3 s. The bound is there to end the test on a machine that is busy with other things.
_SECONDS = 120


@pytest.mark.alone
async def test_four_schedulers_race_over_one_second(house: House) -> None:
    """Nobody dies, so each comes exactly once; and they hardly ever take the same."""
    ports = [free_port() for _ in range(4)]
    racers = await asyncio.gather(*(house.start("scheduler", CARILLON_HEALTH_PORT=str(port)) for port in ports))
    async with receiving(house, QUEUE) as receiver:
        all_ = await crowd(house, 1_000, _ENTRIES // 1_000, after=9, within=1)
        try:
            await receiver.got(_ENTRIES, _SECONDS)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{house.logs()}") from None
        await gone(house, all_)
        conflicts = sum([await measured(port, "occurrences_conflicts_total") for port in ports])
        fired = [await measured(port, "occurrences_fired_total", outcome="fired") for port in ports]
        await settled(house, receiver, all_, racers)
    check_came(receiver, all_)
    assert len(receiver.all) == _ENTRIES, "repeated"
    check_not_early(receiver)
    took = max(each.came for each in receiver.all) - min(each.due for each in receiver.all)
    print(f"{_ENTRIES} out in {took.total_seconds():.1f} s, {conflicts:.0f} conflicts; fired by each: {fired}")
    assert conflicts < _ENTRIES / 100
