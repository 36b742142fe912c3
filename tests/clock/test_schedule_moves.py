"""Schedules that are there: removed, paused, cancelled, fired by hand, and tried again from dead letters."""

import asyncio
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from shared.clock.rules.instants import spread
from shared.clock.rules.occurrences import HELD_BACK, OccurrenceKind
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import Definition, Schedule, ScheduleState
from shared.clock.schedules import Accepted, Retried, ScheduleFlow
from shared.core.errors import Conflict
from shared.store import Store
from tests.clock.made import (
    AHEAD,
    HOUR,
    HOURLY,
    LIST,
    OTHER,
    PAST,
    accepted,
    check_whole,
    pending,
    stored,
    wanted,
)

pytestmark = pytest.mark.native


async def test_remove_forgets_all_of_it(store: Store, flow: ScheduleFlow) -> None:
    await accepted(flow, wanted())
    await accepted(flow, wanted("ab"))
    assert await flow.remove("ns/a")
    assert not await flow.remove("ns/a")
    assert await store.schedules.get("ns/a") is None
    assert await pending(store) == []
    await check_whole(store, "ab", LIST)


async def test_a_key_is_used_again_while_it_is_removed(store: Store, flow: ScheduleFlow) -> None:
    for _ in range(10):
        first = await accepted(flow, wanted())
        removed, again = await asyncio.gather(flow.remove("ns/a"), flow.accept([wanted()]))
        assert removed
        [answer] = again
        assert isinstance(answer, Accepted)
        found = await store.schedules.get("ns/a")
        if answer.created:
            assert answer.schedule.generation != first.schedule.generation
            await check_whole(store, "a", LIST)
        else:  # it was asked for before it went
            assert answer.schedule.generation == first.schedule.generation
            assert found is None
            assert await pending(store) == []
        await flow.remove("ns/a")


async def test_pause_and_resume_hold_and_let_go(store: Store, flow: ScheduleFlow) -> None:
    await accepted(flow, wanted())
    before = await pending(store)
    for _ in range(2):
        paused = await flow.pause("ns/a")
        assert paused is not None
        assert paused.state is ScheduleState.PAUSED
        assert [each.visible_at for each in await pending(store)] == [HELD_BACK, HELD_BACK]
    for _ in range(2):
        resumed = await flow.resume("ns/a")
        assert resumed is not None
        assert resumed.state is ScheduleState.ACTIVE
        assert await pending(store) == before


async def test_pause_and_resume_of_what_is_not_there_or_over(store: Store, flow: ScheduleFlow) -> None:
    assert await flow.pause("ns/a") is None
    assert await flow.resume("ns/a") is None
    made = await accepted(flow, wanted())
    await store.schedules.finish([made.schedule.id], before=AHEAD + 2 * HOUR, at=AHEAD)
    for move in (flow.pause, flow.resume):
        with pytest.raises(Conflict):
            await move("ns/a")


async def test_pause_and_resume_at_once_agree_with_the_state(store: Store, flow: ScheduleFlow) -> None:
    await accepted(flow, wanted())
    for _ in range(10):
        await asyncio.gather(flow.pause("ns/a"), flow.resume("ns/a"))
        if (await stored(store)).state is ScheduleState.ACTIVE:
            assert [each.visible_at for each in await pending(store)] == list(LIST.instants)


async def test_one_instant_is_cancelled(store: Store, flow: ScheduleFlow) -> None:
    await accepted(flow, wanted())
    assert not await flow.cancel("ns/b", AHEAD)
    assert not await flow.cancel("ns/a", AHEAD + timedelta(milliseconds=1))
    assert await flow.cancel("ns/a", AHEAD)
    assert not await flow.cancel("ns/a", AHEAD)
    assert [each.due for each in await pending(store)] == [AHEAD + HOUR]


async def test_a_delayed_instant_is_cancelled_by_either_name(store: Store, flow: ScheduleFlow) -> None:
    windowed = replace(LIST, window_seconds=60.0)
    delay = spread(windowed, "a")
    assert delay > timedelta(0)
    await accepted(flow, wanted(definition=windowed))
    assert await flow.cancel("ns/a", AHEAD + delay)
    assert [each.due for each in await pending(store)] == [AHEAD + HOUR + delay]
    assert await flow.cancel("ns/a", AHEAD + HOUR)
    assert await pending(store) == []


async def test_an_instant_of_a_recurrence_is_not_cancelled(store: Store, flow: ScheduleFlow) -> None:
    await accepted(flow, wanted(definition=HOURLY))
    with pytest.raises(Conflict):
        await flow.cancel("ns/a", AHEAD)
    await check_whole(store, "a", HOURLY)


@pytest.mark.parametrize("definition", [LIST, HOURLY])
async def test_fired_by_hand_it_is_due_now_and_the_rest_stays(
    store: Store, flow: ScheduleFlow, definition: Definition
) -> None:
    assert await flow.fire("ns/a") is None
    await accepted(flow, wanted(definition=definition))
    rest = await pending(store)
    before = await store.now()
    asked = await flow.fire("ns/a")
    assert asked is not None
    assert asked.kind is OccurrenceKind.ASKED
    assert abs(asked.due - before) < timedelta(seconds=5)
    assert await pending(store) == [asked, *rest]


def letter(key: str, schedule: Schedule | None, due: datetime) -> DeadLetter:
    return DeadLetter(
        id=f"{key}/{due}",
        death=f"{key}/{due}",
        namespace="ns",
        key=key,
        schedule_id=f"ns/{key}",
        generation="g" if schedule is None else schedule.generation,
        due=due,
        died_at=PAST + HOUR,
        attempts=10,
        error="refused",
    )


async def test_dead_letters_are_attempted_again(store: Store, flow: ScheduleFlow) -> None:
    made = await accepted(flow, wanted())
    mine, orphan, stays = (
        letter("a", made.schedule, PAST),
        letter("gone", None, PAST),
        letter("a", made.schedule, PAST + HOUR),
    )
    await store.dead_letters.add([mine, orphan, stays])
    before = await store.now()
    assert await flow.retry([mine, orphan]) == Retried(again=[mine.id])
    [again, *rest] = await pending(store)
    assert (again.due, again.kind, again.attempts) == (PAST, OccurrenceKind.ASKED, 0)
    assert again.generation == made.schedule.generation
    assert again.fires_at == again.visible_at
    assert abs(again.fires_at - before) < timedelta(seconds=5)
    assert [each.due for each in rest] == list(LIST.instants)
    assert {each.id for each in await store.dead_letters.page("ns", limit=10)} == {orphan.id, stays.id}


async def test_a_retry_is_with_what_the_schedule_says_now_and_once(store: Store, flow: ScheduleFlow) -> None:
    made = await accepted(flow, wanted())
    dead = letter("a", made.schedule, PAST)
    await store.dead_letters.add([dead])
    changed = await flow.put(wanted(definition=OTHER))
    await asyncio.gather(*(flow.retry([dead]) for _ in range(3)))
    [again] = [each for each in await pending(store) if each.due == PAST]
    assert again.generation == changed.schedule.generation
    assert await flow.retry([]) == Retried(again=[])
