"""RabbitMQ out of the clock's reach while instants come due: it refuses connections, or does not answer at all.

Its other users reach it all the time, so what gets through is seen when it does.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import pytest

from carillon.wire.clock import Retry
from services.embedded.processes import free_port
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import ScheduleState
from shared.clock.schedules import Accepted
from tests.chaos.outages import (
    LEASED,
    Outage,
    check_came,
    check_not_early,
    check_nothing_counted,
    pending,
)
from tests.chaos.test_clock_killed import QUEUE, expected, gone, series, settled
from tests.drivers.rabbitmq.proxy import SilencableProxy
from tests.e2e.clocks import NAMESPACE, crowd, measured, receiving
from tests.e2e.house import House
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

_SCHEDULERS = 2


class Gate(SilencableProxy):
    """A way to the broker that can be closed: `refusing`, each new connection is reset at once."""

    refusing = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
        else:
            await super()._accept(reader, writer)

    def shut(self, *, silently: bool) -> None:
        if silently:
            self.silent = True
        else:
            self.refusing = True
            self.cut()

    def open(self) -> None:
        # What was half sent can never be made whole.
        self.cut()
        self.silent = self.refusing = False


@pytest.mark.alone
@pytest.mark.parametrize("silently", and_rarely(False, rarely=(True,)), ids=["refuses", "is_silent"])
async def test_rabbitmq_is_out_of_reach_for_a_while(house: House, silently: bool) -> None:
    """Nothing is counted and nothing is a dead letter, though each instant has but one attempt."""
    ports = [free_port() for _ in range(_SCHEDULERS)]
    async with gate_to(house) as (gate, url), receiving(house, QUEUE) as receiver:
        settings = {**LEASED, "CARILLON_BROKER_URL": url, "CARILLON_BROKER_PUBLISH_TIMEOUT_SECONDS": "2"}
        running = [await house.start("scheduler", CARILLON_HEALTH_PORT=str(port), **settings) for port in ports]
        once = Retry(attempts=1)
        all_ = [*await crowd(house, 20, 30, after=4, within=3), *await series(house, max_occurrences=4, retry=once)]
        await receiver.got(150)
        before = await pending(house, all_)
        gate.shut(silently=silently)
        outage = Outage(before)
        await until(lambda: all_tried(house, ports, all_), "what is due to be tried in vain")
        so_far = len(receiver.times)
        gate.open()
        outage.is_over()
        await gone(house, all_, seconds=120)
        took = outage.since
        await finished(house, all_)
        await settled(house, receiver, all_, running)
    print(f"{so_far} came before; all after {took:.1f} s")
    # What was on its way at the end of reach had come by then; nothing else.
    assert so_far <= len(due_by(all_, outage)) <= len(receiver.times)
    check_came(receiver, all_)
    check_not_early(receiver)
    outage.check(receiver)
    await check_nothing_counted(house, all_)


async def test_rabbitmq_is_silent_for_many_leases(house: House) -> None:
    """An entry that kills its processes is given up after so many claims. These kill nobody, however long it lasts."""
    async with gate_to(house) as (gate, url), receiving(house, QUEUE) as receiver:
        port = free_port()
        settings = {"CARILLON_SCHEDULER_LEASE_SECONDS": "2", "CARILLON_SCHEDULER_TICK_SECONDS": "0.1"}
        running = [await house.start("scheduler", CARILLON_HEALTH_PORT=str(port), CARILLON_BROKER_URL=url, **settings)]
        gate.shut(silently=True)
        all_ = await crowd(house, 10, 2, after=3, within=0.5)
        # As if it had lasted for many leases already.
        await house.servers.store.occurrences._occurrences.update_many({}, {"$set": {"claims": 18}})

        async def went_on_for_long() -> bool:
            return bool(await letters(house)) or await unanswered(port) >= 60

        await until(went_on_for_long, "several attempts at each", 120)
        gate.open()
        await gone(house, all_)
        assert not await letters(house)
        await settled(house, receiver, all_, running)
    check_came(receiver, all_)
    await check_nothing_counted(house, all_)


async def letters(house: House) -> list[DeadLetter]:
    return await house.servers.store.dead_letters.page(NAMESPACE, limit=100)


async def unanswered(port: int) -> float:
    return await measured(port, "occurrences_fired_total", outcome="unanswered")


@asynccontextmanager
async def gate_to(house: House) -> AsyncIterator[tuple[Gate, str]]:
    """A gate in front of the broker, and the broker's URL through it."""
    url = urlsplit(house.environment["CARILLON_BROKER_URL"])
    gate = Gate(url.hostname or "", url.port or 0)
    async with gate.running():
        yield gate, urlunsplit(url._replace(netloc=f"{url.username}:{url.password}@127.0.0.1:{gate.port}"))


async def all_tried(house: House, ports: list[int], all_: list[Accepted]) -> bool:
    """The last instant is past, and each process has had no answer."""
    last = max(due for _, due in expected(each for each in all_ if each.schedule.definition.instants))
    if await house.servers.time.now() <= last + timedelta(seconds=1):
        return False
    return all([await unanswered(port) > 0 for port in ports])


async def finished(house: House, all_: list[Accepted]) -> None:
    """Wait until the schedules themselves have finished."""
    ids = [each.schedule.id for each in all_]

    async def are_finished() -> bool:
        found = await house.servers.store.schedules.many(ids)
        return {each.state for each in found.values()} == {ScheduleState.FINISHED} and len(found) == len(ids)

    await until(are_finished, "all schedules to have finished")


def due_by(all_: list[Accepted], outage: Outage) -> set[object]:
    return {instant for instant in expected(all_) if instant[1] <= outage.gone}
