"""Series that follow their calendars, and backfills that fire each instant once."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from shared.clock import backfill
from shared.clock.backfill import BackfillFlow
from shared.clock.calendars import CalendarFollowing
from shared.clock.rules.calendars import Calendar, Shift
from shared.clock.rules.instants import instants_between
from shared.clock.rules.recurrence import Cron, Every
from shared.clock.rules.schedules import Backfill, Definition, schedule_id
from shared.clock.schedules import ScheduleFlow
from shared.core.errors import Conflict, Invalid, Unavailable
from shared.store import Store
from shared.time import DatabaseTime
from tests.clock.firing import Firing
from tests.clock.made import AHEAD, CALLBACK, HOUR, accepted, pending, stored, wanted

pytestmark = pytest.mark.native

DAY = timedelta(days=1)
DAILY = Definition(callback=CALLBACK, recurrence=Cron("0 0 * * *"), exclude=("off",))
TIMES = ("due", "fires_at", "visible_at")
MIDNIGHT = AHEAD  # the first instant after now lies long before; what counts is what comes after it


async def exclude(store: Store, *days: datetime, name: str = "off") -> None:
    dates = tuple(sorted(f"{day:%Y-%m-%d}" for day in days))
    await store.calendars.put(
        Calendar(
            id=schedule_id("ns", name), namespace="ns", name=name, timezone="UTC", dates=dates,
            updated_at=await store.now(),
        )
    )  # fmt: skip


async def tomorrow(store: Store) -> datetime:
    return (await store.now()).replace(hour=0, minute=0, second=0, microsecond=0) + DAY


async def due(store: Store, key: str = "a") -> datetime:
    [series] = await pending(store, key)
    assert series.visible_at == series.fires_at == series.due
    return series.due


async def test_a_series_passes_over_the_days_of_its_calendar(store: Store, flow: ScheduleFlow) -> None:
    first = await tomorrow(store)
    await exclude(store, first, first + 2 * DAY)
    await accepted(flow, wanted(definition=DAILY))
    firing = Firing(store)
    for _ in range(3):
        await firing.run_once(AHEAD)
    assert [at for _, at in firing.fired] == [first + DAY, first + 3 * DAY, first + 4 * DAY]


@pytest.mark.parametrize("shift", [Shift.NEXT, Shift.PREVIOUS])
async def test_a_shifted_instant_fires_on_another_day(store: Store, flow: ScheduleFlow, shift: Shift) -> None:
    first = await tomorrow(store)
    monthly = first + 10 * DAY
    line = Cron(f"0 0 {monthly.day} * *")
    await exclude(store, monthly)
    await accepted(flow, wanted(definition=replace(DAILY, recurrence=line, shift=shift)))
    assert await due(store) == monthly + (DAY if shift is Shift.NEXT else -DAY)
    firing = Firing(store)
    for _ in range(2):
        await firing.run_once(AHEAD)
    assert len({at for _, at in firing.fired}) == 2
    assert firing.fired[1][1].day == monthly.day


async def test_a_day_that_is_added_counts_at_once(store: Store, flow: ScheduleFlow) -> None:
    first = await tomorrow(store)
    await exclude(store, first + 100 * DAY)
    await accepted(flow, wanted(definition=DAILY))
    assert await due(store) == first
    await exclude(store, first, first + DAY)
    firing = Firing(store)
    await firing.run_once(AHEAD)
    assert firing.fired == []
    assert await due(store) == first + 2 * DAY
    [series] = await pending(store)
    assert (series.runs, series.token) == (0, "")


async def test_a_day_that_is_taken_off_fires_after_a_sweep(store: Store, flow: ScheduleFlow) -> None:
    first, following = await tomorrow(store), CalendarFollowing(store, DatabaseTime(store))
    await exclude(store, first, first + DAY)
    await accepted(flow, wanted(definition=DAILY))
    await accepted(flow, wanted("b", replace(DAILY, exclude=())))
    assert await following.run_once() == 1
    assert await due(store) == first + 2 * DAY
    await exclude(store, first + DAY)
    assert await following.run_once() == 1
    assert await due(store) == first
    assert await due(store, "b") == first


async def test_a_changed_calendar_is_looked_at_twice(store: Store, flow: ScheduleFlow) -> None:
    """A process that has read the calendar before the change stores the series after the first look."""
    first, following = await tomorrow(store), CalendarFollowing(store, DatabaseTime(store))
    await exclude(store, first)
    await accepted(flow, wanted(definition=DAILY))
    await exclude(store, first + 100 * DAY)
    assert await following.run_once() == 1
    assert await due(store) == first
    await store.occurrences._occurrences.update_one({}, [{"$set": dict.fromkeys(TIMES, first + DAY)}])
    assert await following.run_once() == 0
    past = await store.now() - HOUR
    await store.calendars._collection.update_one({}, {"$set": {"updated_at": past, "changed": past}})
    assert [await following.run_once() for _ in range(2)] == [1, 0]
    assert await due(store) == first


async def test_a_series_that_fired_early_does_not_go_back(store: Store, flow: ScheduleFlow) -> None:
    first = await tomorrow(store)
    following = CalendarFollowing(store, DatabaseTime(store))
    await exclude(store, first + 100 * DAY)
    await accepted(flow, wanted(definition=DAILY))
    await Firing(store).run_once(first)
    assert await due(store) == first + DAY
    await exclude(store, first + 99 * DAY)
    await following.run_once()
    assert await due(store) == first + DAY


async def test_an_instant_that_was_shifted_back_does_not_fire_again(store: Store, flow: ScheduleFlow) -> None:
    first, following = await tomorrow(store), CalendarFollowing(store, DatabaseTime(store))
    await exclude(store, first + DAY)
    weekly = replace(DAILY, recurrence=Cron(f"0 0 * * {(first + DAY).isoweekday() % 7}"), shift=Shift.PREVIOUS)
    await accepted(flow, wanted(definition=weekly))
    firing = Firing(store)
    await firing.run_once(AHEAD)
    assert [at for _, at in firing.fired] == [first]
    await exclude(store, first + 100 * DAY)
    await following.run_once()
    assert await due(store) == first + 8 * DAY


async def test_a_series_notes_what_has_fired_before_its_turn(store: Store, flow: ScheduleFlow) -> None:
    first, following = await tomorrow(store), CalendarFollowing(store, DatabaseTime(store))
    await exclude(store, first)
    twice = replace(DAILY, recurrence=Cron("0 0,12 * * *", starts_at=first), shift=Shift.NEXT)
    await accepted(flow, wanted(definition=twice))
    firing = Firing(store)
    await firing.run_once(first + DAY)
    [series] = await pending(store)
    assert (series.due, series.raws) == (first + DAY + 12 * HOUR, (first + 12 * HOUR, first + DAY + 12 * HOUR))
    assert series.passed is not None
    assert (series.passed.moment, series.passed.later) == (first + DAY, (first, first + DAY))
    await exclude(store, first + 100 * DAY)
    assert await following.run_once() == 1
    [series] = await pending(store)
    assert (series.due, series.raws) == (first + DAY + 12 * HOUR, ())
    for _ in range(2):
        await firing.run_once(AHEAD)
    assert [at - first for _, at in firing.fired] == [DAY, DAY + 12 * HOUR, 2 * DAY]


async def test_a_claimed_series_is_left_to_its_scheduler(store: Store, flow: ScheduleFlow) -> None:
    first, following = await tomorrow(store), CalendarFollowing(store, DatabaseTime(store))
    await exclude(store, first)
    await accepted(flow, wanted(definition=DAILY))
    await store.occurrences._occurrences.update_many({}, {"$set": {"token": "another-scheduler"}})
    await exclude(store, first + 100 * DAY)
    await following.run_once()
    assert await due(store) == first + DAY
    firing = Firing(store)
    await firing.run_once(AHEAD)
    assert (firing.fired, await due(store)) == ([], first)
    await firing.run_once(AHEAD)
    assert [at for _, at in firing.fired] == [first]


async def test_a_series_that_a_calendar_ends_is_over(store: Store, flow: ScheduleFlow) -> None:
    first = await tomorrow(store)
    last = replace(DAILY, recurrence=Cron("0 0 * * *", ends_at=first))
    await exclude(store, first + 100 * DAY)
    await accepted(flow, wanted(definition=last))
    await exclude(store, first)
    firing = Firing(store)
    await firing.run_once(AHEAD)
    assert (firing.fired, await pending(store)) == ([], [])
    assert (await stored(store)).sweep_at is not None
    with pytest.raises(Invalid, match="no instant lies ahead"):
        await flow.put(wanted("b", last))


HOURLY = Definition(callback=CALLBACK, recurrence=Every(3_600, AHEAD - 1_000_000 * HOUR))


async def test_a_backfill_fires_each_past_instant_once(store: Store, flow: ScheduleFlow) -> None:
    now = await store.now()
    made = await accepted(flow, wanted(definition=HOURLY))
    backfills = BackfillFlow(store, DatabaseTime(store))
    since, until = now - 10 * HOUR, now - 3 * HOUR
    expected = list(instants_between(HOURLY, "a", since, until, None))
    assert await backfills.run("ns/a", since, until) == len(expected) > 5
    firing = Firing(store)
    await firing.run_once(await store.now())
    assert sorted(at for _, at in firing.fired) == expected
    assert await backfills.run("ns/a", since, until) == 0
    assert await backfills.run("ns/a", since - HOUR, until + HOUR) == 2
    await firing.run_once(await store.now())
    assert len({message_id for message_id, _ in firing.fired}) == len(firing.fired) == len(expected) + 2
    own = {each.message_id for each in await pending(store)}
    assert not own & {message_id for message_id, _ in firing.fired}
    late = [each.late_ms for each in await store.outcomes.latest(made.schedule.owner, 20)]
    assert max(late) < 3_600_000  # it counts from the request
    assert await backfills.run("ns/none", since, until) is None


async def test_many_equal_backfills_at_once_fire_each_instant_once(store: Store, flow: ScheduleFlow) -> None:
    now = await store.now()
    await accepted(flow, wanted(definition=HOURLY))
    backfills, firing = BackfillFlow(store, DatabaseTime(store)), Firing(store)

    async def run() -> int:
        try:
            return await backfills.run("ns/a", now - 10 * HOUR, now - HOUR) or 0
        except Conflict:
            return 0

    counts = await asyncio.gather(*(run() for _ in range(8)), firing.run_once(now + timedelta(seconds=30)))
    await firing.run_once(now + timedelta(seconds=30))
    assert len({message_id for message_id, _ in firing.fired}) == len(firing.fired) == sum(filter(None, counts))


async def test_a_backfill_whose_process_died_is_completed(
    store: Store, flow: ScheduleFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = await store.now()
    await accepted(flow, wanted(definition=HOURLY))
    backfills, firing = BackfillFlow(store, DatabaseTime(store)), Firing(store)
    since, until = now - 10 * HOUR, now - HOUR

    async def die(*_: object) -> None:
        raise Unavailable("it came no further")

    with monkeypatch.context() as patch:
        patch.setattr(store.schedules, "end_backfill", die)
        with pytest.raises(Unavailable):
            await backfills.run("ns/a", since, until)
    await firing.run_once(await store.now())
    fired = len(firing.fired)
    with pytest.raises(Conflict, match="under way"):
        await backfills.run("ns/a", since, until)
    monkeypatch.setattr(backfill, "_TAKEN_OVER_AFTER", timedelta(0))
    assert await backfills.run("ns/a", since, until) == 0
    await firing.run_once(await store.now())
    assert len(firing.fired) == fired > 5


async def test_a_slow_backfill_that_is_taken_over_fires_nothing_twice(
    store: Store, flow: ScheduleFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the outcomes, and stores its occurrences after another request's have fired."""
    now = await store.now()
    await accepted(flow, wanted(definition=HOURLY))
    backfills, firing, find = BackfillFlow(store, DatabaseTime(store)), Firing(store), store.outcomes.find
    monkeypatch.setattr(backfill, "_TAKEN_OVER_AFTER", timedelta(0))

    async def be_overtaken(ids: Sequence[str]) -> set[str]:
        found = await find(ids)
        monkeypatch.setattr(store.outcomes, "find", find)
        assert await backfills.run("ns/a", now - 10 * HOUR, now - HOUR) == 0
        await firing.run_once(await store.now())
        monkeypatch.setattr(backfill, "_STORED_WITHIN", timedelta(-1))  # as if it had slept for long
        return found

    monkeypatch.setattr(store.outcomes, "find", be_overtaken)
    with pytest.raises(Unavailable):
        await backfills.run("ns/a", now - 10 * HOUR, now - HOUR)
    await firing.run_once(await store.now())
    assert len({message_id for message_id, _ in firing.fired}) == len(firing.fired) > 5


async def test_one_request_takes_a_dead_backfill_over(store: Store, flow: ScheduleFlow) -> None:
    now = await store.now()
    await accepted(flow, wanted(definition=HOURLY))
    read = await store.schedules.get("ns/a")
    assert read is not None
    await store.schedules.note_backfill(read, Backfill(now - HOUR, now, now))
    begun = await store.schedules.get("ns/a")
    assert begun is not None
    over = replace(begun.backfills[0], taken_over_at=now)
    taken = [await store.schedules.note_backfill(begun, over) for _ in range(2)]
    assert taken == [True, False]


async def test_a_backfill_that_broke_off_long_ago_fires_nothing_again(
    store: Store, flow: ScheduleFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcomes may be gone."""
    now = await store.now()
    await accepted(flow, wanted(definition=HOURLY))
    backfills, firing = BackfillFlow(store, DatabaseTime(store)), Firing(store)

    async def die(*_: object) -> None:
        raise Unavailable("it came no further")

    with monkeypatch.context() as patch:
        patch.setattr(store.schedules, "end_backfill", die)
        with pytest.raises(Unavailable):
            await backfills.run("ns/a", now - 10 * HOUR, now - HOUR)
    await firing.run_once(await store.now())
    fired = len(firing.fired)
    await store.outcomes.forget(before=AHEAD, limit=1_000)
    monkeypatch.setattr(backfill, "_TAKEN_OVER_AFTER", timedelta(0))
    monkeypatch.setattr(backfill, "_GIVEN_UP_AFTER", timedelta(0))
    assert await backfills.run("ns/a", now - 11 * HOUR, now - HOUR) == 1
    await firing.run_once(await store.now())
    assert len(firing.fired) == fired + 1 > 5


async def test_a_backfill_leaves_out_excluded_days(store: Store, flow: ScheduleFlow) -> None:
    now = await store.now()
    await exclude(store, now - 2 * DAY)
    await accepted(flow, wanted(definition=replace(DAILY, recurrence=Cron("0 0 * * *"))))
    assert await BackfillFlow(store, DatabaseTime(store)).run("ns/a", now - 4 * DAY, now - DAY) == 2
