"""What is forgotten of finished schedules, on a real database."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from services.scheduler.sweep import Retention
from shared.clock.rules.following import occurrences
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import ScheduleState
from shared.clock.schedules import ScheduleFlow
from shared.runtime.settings import SchedulerSettings
from shared.store import Store
from shared.time import DatabaseTime
from tests.clock.made import LIST, past_schedule, pending, stored

pytestmark = pytest.mark.native

DAY = timedelta(days=1)


@pytest.fixture
def retention(store: Store) -> Retention:
    return Retention(store, DatabaseTime(store), SchedulerSettings())


async def finished(store: Store, at: datetime) -> None:
    """One schedule, of which nothing is left."""
    await store.schedules.add([past_schedule()])
    await store.schedules.finish(["ns/a"], before=at, at=at)


def letter(now: datetime) -> DeadLetter:
    schedule = past_schedule()
    [due] = schedule.definition.instants
    return DeadLetter(
        id="m", death="m", namespace="ns", key="a", schedule_id=schedule.id, generation=schedule.generation, due=due,
        died_at=now, attempts=1, error="refused",
    )  # fmt: skip


async def test_finished_schedules_are_forgotten_in_their_time(store: Store, retention: Retention) -> None:
    now = await store.now()
    await finished(store, now - 6 * DAY)
    await retention.run_once()
    assert (await stored(store)).state is ScheduleState.FINISHED
    await store.schedules.keep_finished(["ns/a"], at=now - 8 * DAY)
    await retention.run_once()
    assert await store.schedules.get("ns/a") is None


@pytest.mark.parametrize("by", ["retry", "fire"])
async def test_what_is_still_to_fire_keeps_its_schedule(
    store: Store, flow: ScheduleFlow, retention: Retention, by: str
) -> None:
    """However far the next attempt lies ahead."""
    now = await store.now()
    await finished(store, now - 6 * DAY)
    assert await (flow.retry([letter(now)]) if by == "retry" else flow.fire("ns/a"))
    for _ in range(2):
        # As if it had been asked for a week ago.
        await store.schedules.keep_finished(["ns/a"], at=now - 8 * DAY)
        await retention.run_once()
        assert (await stored(store)).state is ScheduleState.FINISHED
    await store.occurrences.complete(await pending(store))
    for each in await pending(store):
        await store.occurrences.remove(each.id)
    await retention.run_once()
    assert await store.schedules.get("ns/a") is not None
    await store.schedules.keep_finished(["ns/a"], at=now - 8 * DAY)
    await retention.run_once()
    assert await store.schedules.get("ns/a") is None


async def test_what_belongs_to_nobody_keeps_no_schedule(store: Store, retention: Retention) -> None:
    """It is forgotten itself, and its schedule in its time."""
    now = await store.now()
    await finished(store, now - 8 * DAY)
    await store.occurrences.add(occurrences(replace(past_schedule(), definition=LIST, generation="dead")))
    await retention.run_once()
    assert await pending(store) == []
    await store.schedules.keep_finished(["ns/a"], at=now - 8 * DAY)
    await retention.run_once()
    assert await store.schedules.get("ns/a") is None


@pytest.mark.parametrize("by", ["retry", "fire"])
async def test_what_is_asked_for_as_its_schedule_grows_old_keeps_it(
    store: Store, flow: ScheduleFlow, retention: Retention, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention has seen nothing pending when somebody asks."""
    now = await store.now()
    await finished(store, now - 8 * DAY)
    look = store.occurrences.with_any

    async def look_and_be_overtaken(owners: list[str]) -> set[str]:
        seen = await look(owners)
        assert await (flow.retry([letter(now)]) if by == "retry" else flow.fire("ns/a"))
        return seen

    monkeypatch.setattr(store.occurrences, "with_any", look_and_be_overtaken)
    await retention.run_once()
    assert (await stored(store)).state is ScheduleState.FINISHED
