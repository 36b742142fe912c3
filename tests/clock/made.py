"""The moves of schedules, and the schedules that tests begin with."""

from datetime import UTC, datetime, timedelta

import pytest

from shared.clock.rules.callbacks import HttpCallback
from shared.clock.rules.following import occurrences
from shared.clock.rules.occurrences import Occurrence
from shared.clock.rules.recurrence import Every, Recurrence, next_after
from shared.clock.rules.schedules import Definition, Schedule, digest, schedule_id
from shared.clock.schedules import Accepted, ScheduleFlow, Wanted
from shared.store import Store
from shared.time import DatabaseTime

PAST = datetime(2020, 1, 1, tzinfo=UTC)
AHEAD = datetime(2100, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
CALLBACK = HttpCallback(payload="1", url="https://example.com")
LIST = Definition(callback=CALLBACK, instants=(AHEAD, AHEAD + HOUR))
OTHER = Definition(callback=CALLBACK, instants=(AHEAD + HOUR, AHEAD + 2 * HOUR, AHEAD + 3 * HOUR))
GONE = Definition(callback=CALLBACK, instants=(PAST,))
HOURLY = Definition(callback=CALLBACK, recurrence=Every(3600, AHEAD))


@pytest.fixture
def flow(store: Store) -> ScheduleFlow:
    return ScheduleFlow(store, DatabaseTime(store))


def wanted(key: str = "a", definition: Definition = LIST) -> Wanted:
    return Wanted("ns", key, definition)


async def accepted(flow: ScheduleFlow, each: Wanted) -> Accepted:
    [answer] = await flow.accept([each])
    assert isinstance(answer, Accepted)
    return answer


async def pending(store: Store, key: str = "a") -> list[Occurrence]:
    return await store.occurrences.find_upcoming(f"schedule/ns/{key}", 100_000)


async def stored(store: Store, key: str = "a") -> Schedule:
    found = await store.schedules.get(f"ns/{key}")
    assert found is not None
    return found


async def check_whole(store: Store, key: str, definition: Definition) -> None:
    """The schedule is complete, and exactly its own occurrences are there."""
    found = await stored(store, key)
    assert found.definition == definition
    assert {each.id for each in await pending(store, key)} == {each.id for each in occurrences(found)}


def past_schedule() -> Schedule:
    """One that was made long ago."""
    return Schedule(
        id=schedule_id("ns", "a"),
        namespace="ns",
        key="a",
        generation="past",
        digest=digest(GONE),
        definition=GONE,
        created_at=PAST - HOUR,
        accepted_at=PAST - HOUR,
        sweep_at=PAST,
    )


def next_instants(recurrence: Recurrence, after: datetime, count: int) -> list[datetime]:
    instants: list[datetime] = []
    following = next_after(recurrence, after)
    while following is not None and len(instants) < count:
        instants.append(following)
        following = next_after(recurrence, following)
    return instants
