"""What callers do with schedules, on a real database: also twice, at once, and after somebody who died half-way."""

import asyncio
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from shared.clock.rules.following import Verdict, judge, occurrences
from shared.clock.rules.recurrence import Every
from shared.clock.rules.schedules import Definition, ScheduleState
from shared.clock.schedules import Accepted, ScheduleFlow
from shared.core.errors import Conflict, Invalid, Unavailable
from shared.store import Store
from shared.time import DatabaseTime
from tests.clock.made import (
    AHEAD,
    CALLBACK,
    GONE,
    HOUR,
    HOURLY,
    LIST,
    OTHER,
    PAST,
    accepted,
    check_whole,
    past_schedule,
    pending,
    stored,
    wanted,
)

pytestmark = pytest.mark.native


async def test_many_are_made_at_once(store: Store, flow: ScheduleFlow) -> None:
    kinds = [LIST, OTHER, HOURLY]
    many = [wanted(f"k{n}", kinds[n % 3]) for n in range(12)]
    answers = await flow.accept(many)
    for each, answer in zip(many, answers, strict=True):
        assert isinstance(answer, Accepted)
        assert (answer.created, answer.changed, answer.skipped) == (True, False, ())
        assert answer.schedule.key == each.key
        await check_whole(store, each.key, each.definition)


async def test_nothing_wanted_is_nothing_made(store: Store, flow: ScheduleFlow) -> None:
    assert await flow.accept([]) == []
    assert await store.occurrences.count() == 0


async def test_the_same_key_twice_in_one_call(store: Store, flow: ScheduleFlow) -> None:
    answers = await flow.accept([wanted(), wanted("b"), wanted(), wanted(definition=OTHER)])
    first, neighbour, same, other = answers
    assert isinstance(first, Accepted)
    assert isinstance(same, Accepted)
    assert isinstance(neighbour, Accepted)
    assert (first.created, neighbour.created, same.created) == (True, True, False)
    assert same.schedule.generation == first.schedule.generation
    assert isinstance(other, Conflict)
    await check_whole(store, "a", LIST)


async def test_the_same_content_changes_nothing_and_another_is_a_conflict(store: Store, flow: ScheduleFlow) -> None:
    first = await accepted(flow, wanted())
    again = await accepted(flow, wanted())
    assert (again.created, again.changed) == (False, False)
    assert again.schedule.generation == first.schedule.generation
    conflict, fresh = await flow.accept([wanted(definition=OTHER), wanted("b")])
    assert isinstance(conflict, Conflict)
    assert (conflict.field, conflict.value) == ("key", "a")
    assert isinstance(fresh, Accepted)
    await check_whole(store, "a", LIST)


async def test_equal_requests_at_once_make_one_schedule(store: Store, flow: ScheduleFlow) -> None:
    flows = [ScheduleFlow(store, DatabaseTime(store)) for _ in range(6)]
    answers = await asyncio.gather(*(accepted(each, wanted()) for each in flows))
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.schedule.generation for answer in answers}) == 1
    await check_whole(store, "a", LIST)


async def test_what_is_past_is_told_and_not_fired(store: Store, flow: ScheduleFlow) -> None:
    mixed = Definition(callback=CALLBACK, instants=(PAST, PAST + HOUR, AHEAD))
    answer = await accepted(flow, wanted(definition=mixed))
    assert answer.skipped == (PAST, PAST + HOUR)
    assert [each.due for each in await pending(store)] == [AHEAD]
    assert (await accepted(flow, wanted(definition=mixed))).skipped == (PAST, PAST + HOUR)


@pytest.mark.parametrize(
    ("definition", "field"),
    [
        (GONE, "schedules"),
        (replace(HOURLY, recurrence=Every(3600, PAST, ends_at=PAST + HOUR)), "ends_at"),
    ],
)
async def test_only_past_instants_are_refused(
    store: Store, flow: ScheduleFlow, definition: Definition, field: str
) -> None:
    refused, fine = await flow.accept([wanted(definition=definition), wanted("b")])
    assert isinstance(refused, Invalid)
    assert refused.field == field
    assert isinstance(fine, Accepted)
    assert await store.schedules.get("ns/a") is None
    with pytest.raises(Invalid):
        await flow.put(wanted(definition=definition))
    assert await store.schedules.get("ns/a") is None


async def test_a_repeat_after_the_last_instant_changes_nothing(store: Store, flow: ScheduleFlow) -> None:
    await store.schedules.add([past_schedule()])
    again = await accepted(flow, wanted(definition=GONE))
    assert (again.created, again.schedule.generation) == (False, "past")
    assert not (await flow.put(wanted(definition=GONE))).changed


async def test_put_makes_then_leaves_then_replaces(store: Store, flow: ScheduleFlow) -> None:
    made = await flow.put(wanted())
    same = await flow.put(wanted())
    assert [(each.created, each.changed) for each in (made, same)] == [(True, False), (False, False)]
    assert same.schedule.generation == made.schedule.generation
    changed = await flow.put(wanted(definition=OTHER))
    assert (changed.created, changed.changed) == (False, True)
    assert changed.schedule.generation != made.schedule.generation
    assert (await stored(store)).created_at == made.schedule.created_at
    await check_whole(store, "a", OTHER)
    await flow.put(wanted(definition=HOURLY))
    await check_whole(store, "a", HOURLY)
    with pytest.raises(Invalid):
        await flow.put(wanted(definition=GONE))
    await check_whole(store, "a", HOURLY)


async def test_put_keeps_a_pause(store: Store, flow: ScheduleFlow) -> None:
    await flow.put(wanted())
    await flow.pause("ns/a")
    await flow.put(wanted(definition=OTHER))
    assert (await stored(store)).state is ScheduleState.PAUSED
    await flow.resume("ns/a")
    await check_whole(store, "a", OTHER)


async def test_of_many_puts_at_once_one_stays_whole(store: Store, flow: ScheduleFlow) -> None:
    await flow.put(wanted())
    definitions = [replace(OTHER, labels={"n": f"{n}"}) for n in range(5)]
    answers = await asyncio.gather(*(flow.put(wanted(definition=each)) for each in definitions))
    assert all(answer.changed for answer in answers)
    last = await stored(store)
    assert last.definition in definitions
    alive = [each for each in await pending(store) if each.generation == last.generation]
    assert [each.due for each in alive] == list(OTHER.instants)


async def test_what_a_dead_process_left_belongs_to_nobody(store: Store, flow: ScheduleFlow) -> None:
    """It waits for a schedule that might come, then goes; a repeated request makes its own."""
    dead = occurrences(replace(past_schedule(), accepted_at=await store.now(), definition=LIST))
    await store.occurrences.add(dead)
    answer = await accepted(flow, wanted())
    assert answer.created
    assert {each.generation for each in await pending(store)} == {"past", answer.schedule.generation}
    young, old = dead[0].accepted_at + HOUR / 2, dead[0].accepted_at + HOUR
    for now, verdict in ((young, Verdict.WAIT), (old, Verdict.VOID)):
        for schedule in (None, answer.schedule):
            assert judge(schedule, dead[0], now, tick=HOUR, misfire_after=HOUR) is verdict


async def test_a_process_that_slept_does_not_make_what_it_stored_count(store: Store, flow: ScheduleFlow) -> None:
    """Its occurrences may be deleted by now."""

    class Sleepy(DatabaseTime):
        naps = 0

        async def now(self) -> datetime:
            self.naps += 1
            return await super().now() + self.naps * HOUR

    with pytest.raises(Unavailable):
        await ScheduleFlow(store, Sleepy(store)).accept([wanted()])
    assert await store.schedules.get("ns/a") is None
    assert (await accepted(flow, wanted())).created


@pytest.mark.parametrize("move", ["add", "replace"])
async def test_a_write_that_the_driver_repeats_does_not_void_what_it_wrote(
    store: Store, flow: ScheduleFlow, monkeypatch: pytest.MonkeyPatch, move: str
) -> None:
    """The reply to the first was lost, as was the server's memory of it."""
    write = getattr(store.schedules, move)

    async def write_twice(*arguments: Any, **options: Any) -> Any:
        await write(*arguments, **options)
        return await write(*arguments, **options)

    monkeypatch.setattr(store.schedules, move, write_twice)
    assert (await flow.put(wanted(definition=OTHER))).created
    await check_whole(store, "a", OTHER)
    assert (await flow.put(wanted())).changed
    await check_whole(store, "a", LIST)
    assert (await accepted(flow, wanted("b"))).created
    await check_whole(store, "b", LIST)


async def test_whoever_loses_a_race_leaves_nothing_behind(store: Store) -> None:
    flows = [ScheduleFlow(store, DatabaseTime(store)) for _ in range(6)]
    await asyncio.gather(*(each.accept([wanted(), wanted("b")]) for each in flows))
    await asyncio.gather(*(each.put(wanted(definition=OTHER)) for each in flows))
    await check_whole(store, "a", OTHER)
    await check_whole(store, "b", LIST)


async def test_one_key_many_times_in_a_request(store: Store, flow: ScheduleFlow) -> None:
    """Each is answered as if it came after those before it."""
    answers = await flow.accept([wanted(definition=each) for each in (GONE, LIST, GONE, OTHER, LIST)])
    assert [type(each) for each in answers] == [Invalid, Accepted, Conflict, Conflict, Accepted]
    assert [each.created for each in answers if isinstance(each, Accepted)] == [True, False]
