"""The clock and suspects: each is fired alone, when nothing else is being fired that it could die of."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from services.scheduler.clock import TickingClock
from shared.clock.rules.occurrences import Occurrence, once
from shared.runtime.settings import SchedulerSettings
from shared.store import Store
from shared.time import DatabaseTime
from tests.clock.firing import Firing
from tests.waiting import until

pytestmark = pytest.mark.native

PAST = datetime(2020, 1, 1, tzinfo=UTC)


class Recorded:
    """Takes its time for each group, and notes what else was being fired when it began."""

    def __init__(self, store: Store) -> None:
        self.groups: list[list[Occurrence]] = []
        self.beside: list[list[list[Occurrence]]] = []
        self._store = store
        self._under_way: list[list[Occurrence]] = []

    async def fire(self, due: list[Occurrence], *, trusted_until: float) -> bool:
        self.groups.append(due)
        self.beside.append(list(self._under_way))
        self._under_way.append(due)
        await asyncio.sleep(0.1)
        await self._store.occurrences.complete(due)
        self._under_way.remove(due)
        return False

    @property
    def fired(self) -> int:
        return sum(len(group) for group in self.groups)


def entry(number: int, *, claims: int = 0, begun: int = 0) -> Occurrence:
    due = PAST + timedelta(seconds=number)
    return replace(once("schedule/ns/a", "g", due, accepted_at=PAST), claims=claims, begun=begun)


@pytest.fixture
async def time(store: Store) -> DatabaseTime:
    measured = DatabaseTime(store)
    await measured.measure()
    return measured


async def test_suspects_are_fired_one_at_a_time_behind_what_was_begun(store: Store, time: DatabaseTime) -> None:
    await store.occurrences.add([entry(n) for n in range(50)])
    await store.occurrences.add([entry(-n, claims=20) for n in range(1, 4)])
    await store.occurrences.add([entry(-9, begun=1)])
    recorded = Recorded(store)
    clock = TickingClock(store, time, recorded, SchedulerSettings())
    assert await clock.tick() == 54
    await clock.start()
    await until(lambda: recorded.fired == 54, "all to be fired")
    await clock.stop()
    others, *suspects = recorded.groups
    assert len(others) == 50
    assert [[each.due for each in group] for group in suspects] == [[entry(-n).due] for n in (9, 3, 2, 1)]
    assert recorded.beside == [[]] * 5


async def test_of_a_crowd_of_suspects_only_the_oldest_are_fired_alone(store: Store, time: DatabaseTime) -> None:
    """The others are cleared and fired in groups."""
    await store.occurrences.add([entry(n, claims=30) for n in range(600)])
    clock = TickingClock(store, time, Recorded(store), SchedulerSettings())
    assert await clock.tick() >= 600
    left = await store.occurrences.find_upcoming("schedule/ns/a", 1_000)
    assert [each.claims for each in left] == [31] * 500 + [1] * 100
    assert all(each.token for each in left)


async def test_suspects_are_given_back_at_the_end(store: Store, time: DatabaseTime) -> None:
    ahead = await time.now() + timedelta(seconds=35)
    waiting = replace(once("schedule/ns/a", "g", ahead, accepted_at=ahead), claims=30)
    await store.occurrences.add([waiting])
    recorded = Recorded(store)
    clock = TickingClock(store, time, recorded, SchedulerSettings(tick_seconds=20, lease_seconds=120))
    assert await clock.tick() == 1
    await clock.start()
    await clock.stop()
    [left] = await store.occurrences.find_upcoming("schedule/ns/a", 9)
    assert (left.token, left.claims, left.visible_at) == ("", 0, left.due)
    assert not recorded.groups


async def test_a_suspect_that_waits_for_its_schedule_stays_one(store: Store, time: DatabaseTime) -> None:
    """No attempt has ended."""
    now = await time.now()
    await store.occurrences.add([replace(once("schedule/ns/a", "g", now, accepted_at=now), begun=3)])
    await Firing(store).run_once(now)
    [left] = await store.occurrences.find_upcoming("schedule/ns/a", 10)
    assert (left.begun, left.claims, left.token) == (3, 0, "")
    assert left.fires_at > now
