"""Behind a backlog: what comes due now is claimed all the same."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from services.scheduler.clock import TickingClock
from shared.clock.rules.occurrences import Occurrence, once
from shared.runtime.settings import SchedulerSettings
from shared.store import Store
from shared.time import DatabaseTime

HELD = 400
MINUTE = timedelta(minutes=1)


class Fired:
    """What a group was fired with."""

    def __init__(self) -> None:
        self.owners: list[str] = []

    async def fire(self, due: list[Occurrence], *, trusted_until: float) -> bool:
        self.owners += [each.owner for each in due]
        return False


def occurrences(namespace: str, count: int, due: datetime) -> Sequence[Occurrence]:
    return [once(f"schedule/{namespace}/{n}", "g", due, accepted_at=due) for n in range(count)]


async def test_what_comes_due_now_is_held_before_the_rest_of_a_backlog(store: Store) -> None:
    time = DatabaseTime(store)
    now = await time.now()
    clock = TickingClock(store, time, Fired(), SchedulerSettings(hold_limit=HELD))
    await store.occurrences.add(occurrences("worst", 10 * HELD, now - MINUTE))
    await clock.tick()
    await store.occurrences.add(occurrences("other", 30, await time.now()))
    await clock.tick()
    held = [held.occurrence.owner.split("/")[1] for held in clock._hold.clear()]
    assert held.count("other") == 30
    assert held.count("worst") == HELD * 7 / 8


async def test_what_comes_due_now_is_held_beside_a_crowd(store: Store) -> None:
    """One namespace has more due at this moment than the memory holds, and no backlog yet."""
    time = DatabaseTime(store)
    now = await time.now()
    clock = TickingClock(store, time, Fired(), SchedulerSettings(hold_limit=HELD))
    await store.occurrences.add(occurrences("worst", HELD // 3, now))
    await clock.tick()
    await store.occurrences.add(occurrences("more", 10 * HELD, await time.now()))
    await clock.tick()
    await store.occurrences.add(occurrences("other", 30, await time.now()))
    await clock.tick()
    held = [held.occurrence.owner.split("/")[1] for held in clock._hold.clear()]
    assert held.count("other") == 30
