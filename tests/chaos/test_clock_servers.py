"""The clock while RabbitMQ or MongoDB is restarted, killed or frozen: nothing lost, nothing early, repeats only of what
was in flight, and soon all is as it was.

Nobody reads from the queue while RabbitMQ is away and comes back, so each message there is delivered once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from shared.clock.schedules import Accepted
from tests import stack as servers
from tests.chaos.outages import (
    LEASE,
    LEASED,
    QUEUES_WRITTEN_DOWN,
    Outage,
    check_came,
    check_not_early,
    check_nothing_counted,
    fewer,
    pending,
)
from tests.chaos.test_clock_killed import QUEUE, gone, settled
from tests.e2e.clocks import crowd, declared, receiving, scheduled
from tests.e2e.house import House, Process

pytestmark = [pytest.mark.chaos, pytest.mark.native, pytest.mark.alone, pytest.mark.kills_servers]

_AWAY = 10.0
# A lease that began before the end is over, the next tick claims, and the group is fired: ten times as long.
_FIRST_WITHIN = 10 * (LEASE + 2)
_ALL_WITHIN = 120.0


@pytest.mark.parametrize(
    ("end", "after", "within"),
    [
        pytest.param(servers.stop, 5, 4, id="is_restarted", marks=pytest.mark.slow),
        pytest.param(servers.kill, QUEUES_WRITTEN_DOWN, 4, id="is_killed"),
    ],
)
async def test_rabbitmq_ends_while_the_clock_fires(
    house: House, end: Callable[[str], None], after: float, within: float
) -> None:
    await declared(house, QUEUE)
    running = await two_schedulers(house)
    all_ = await crowd(house, 25, 180, after=after, within=within)
    await fewer(house, 3_600)
    async with absence(house, all_, end, servers.start, "rabbitmq") as outage:
        pass
    left = await house.servers.store.occurrences.count()
    assert left > 0
    await fewer(house, left - 1, _FIRST_WITHIN)
    first = outage.since
    await gone(house, all_, seconds=_ALL_WITHIN)
    print(f"{left} were left when RabbitMQ was back: the first after {first:.1f} s, all after {outage.since:.1f} s")
    async with receiving(house, QUEUE) as receiver:
        await settled(house, receiver, all_, running)
    check_came(receiver, all_)
    outage.check(receiver)
    await check_nothing_counted(house, all_)


@pytest.mark.parametrize(
    ("end", "begin"),
    [
        pytest.param(servers.pause, servers.unpause, id="freezes", marks=pytest.mark.slow),
        pytest.param(servers.kill, servers.start, id="is_killed"),
    ],
)
async def test_mongodb_is_away_for_ten_seconds_while_the_clock_fires(
    house: House, end: Callable[[str], None], begin: Callable[[str], None]
) -> None:
    running = await two_schedulers(house)
    async with receiving(house, QUEUE) as receiver:
        all_ = await crowd(house, 25, 160, after=5, within=4)
        await fewer(house, 2_500)
        async with absence(house, all_, end, begin, "mongo") as outage:
            await asyncio.sleep(_AWAY)
        so_far = len(receiver.times)
        assert so_far < 4_000
        await receiver.got(so_far + 1, _FIRST_WITHIN)
        first = outage.since
        await gone(house, all_, seconds=_ALL_WITHIN)
        print(f"the first came {first:.1f} s after MongoDB was back, all after {outage.since:.1f} s")
        await settled(house, receiver, all_, running)
    check_came(receiver, all_)
    check_not_early(receiver)
    outage.check(receiver)
    await check_nothing_counted(house, all_)


@pytest.mark.slow  # while it fires, it is away in each run
async def test_mongodb_is_away_while_the_clock_is_idle(house: House) -> None:
    """It waits, and goes on by itself."""
    running = await two_schedulers(house)
    async with receiving(house, QUEUE) as receiver:
        servers.kill("mongo")
        try:
            await asyncio.sleep(_AWAY)
        finally:
            await asyncio.to_thread(servers.start, "mongo")
        all_ = [await scheduled(house, "after", 3, 4, 5)]
        await receiver.got(3, _FIRST_WITHIN)
        await settled(house, receiver, all_, running)
    check_came(receiver, all_)
    check_not_early(receiver)
    assert set(receiver.times.values()) == {1}


async def two_schedulers(house: House) -> list[Process]:
    return [await house.start("scheduler", **LEASED) for _ in range(2)]


@asynccontextmanager
async def absence(
    house: House, all_: list[Accepted], end: Callable[[str], None], begin: Callable[[str], None], server: str
) -> AsyncIterator[Outage]:
    """The server is away inside, whatever happens there; afterwards it answers."""
    before = await pending(house, all_)
    await asyncio.to_thread(end, server)
    try:
        outage = Outage(before)
        yield outage
    finally:
        await asyncio.to_thread(begin, server)
    outage.is_over()
