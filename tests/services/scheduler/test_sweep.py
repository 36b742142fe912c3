"""The sweep, on a real database: what has ended is finished, and what was left held back goes on."""

from datetime import datetime

import pytest
from msgspec.structs import replace

from services.scheduler.sweep import Sweep
from shared.clock.rules.following import occurrences
from shared.clock.rules.occurrences import HELD_BACK, SHARDS, once
from shared.clock.rules.schedules import ScheduleState
from shared.clock.schedules import ScheduleFlow
from shared.store import Store
from shared.time import DatabaseTime
from tests.clock.made import AHEAD, GONE, HOUR, LIST, OTHER, PAST, accepted, past_schedule, pending, stored, wanted

pytestmark = pytest.mark.native


@pytest.fixture
def sweep(store: Store) -> Sweep:
    return Sweep(store, DatabaseTime(store))


async def test_what_was_left_held_back_is_let_go(store: Store, flow: ScheduleFlow, sweep: Sweep) -> None:
    """Somebody resumed the schedule while another one paused it, and died before it looked again."""
    for key in ("a", "b"):
        await accepted(flow, wanted(key, OTHER))
        await flow.pause(f"ns/{key}")
    await store.schedules.set_state("ns/a", to=ScheduleState.ACTIVE)
    for _ in range(SHARDS):
        await sweep.run_once()
    assert [each.visible_at for each in await pending(store, "a")] == list(OTHER.instants)
    assert {each.visible_at for each in await pending(store, "b")} == {HELD_BACK}


async def test_what_has_ended_is_finished_once(store: Store, flow: ScheduleFlow, sweep: Sweep) -> None:
    ended = past_schedule()
    assert ended.sweep_at is not None
    await store.schedules.add([ended])
    await accepted(flow, wanted("b", LIST))
    assert [(await sweep.run_once()).discarded for _ in range(2)] == [1, 0]
    assert (await stored(store)).state is ScheduleState.FINISHED
    assert (await stored(store, "b")).state is ScheduleState.ACTIVE


async def test_what_belongs_to_nobody_does_not_keep_a_schedule_from_its_end(
    store: Store, flow: ScheduleFlow, sweep: Sweep
) -> None:
    """A request for another content died, or lost the store, before it removed what it had stored in vain."""
    for key, generation in (("a", "past"), ("b", "busy")):
        ended = replace(past_schedule(), id=f"ns/{key}", key=key, generation=generation)
        await store.schedules.add([ended])
        await store.occurrences.add(occurrences(replace(ended, definition=OTHER, generation="dead")))
    own = once("schedule/ns/b", "busy", AHEAD, accepted_at=PAST)
    await store.occurrences.add([own])
    assert (await sweep.run_once()).discarded == 0
    assert await pending(store, "a") == []
    assert await pending(store, "b") == [own]
    await store.schedules.sweep_again(["ns/a", "ns/b"], before=AHEAD, at=PAST)
    assert (await sweep.run_once()).discarded == 1
    assert (await stored(store, "a")).state is ScheduleState.FINISHED
    assert (await stored(store, "b")).state is ScheduleState.ACTIVE


async def test_what_is_on_its_way_is_left_alone(store: Store, sweep: Sweep) -> None:
    """Somebody replaces the schedule as the sweep looks at it."""
    await store.schedules.add([past_schedule()])
    coming = occurrences(replace(past_schedule(), definition=LIST, generation="next", accepted_at=await store.now()))
    await store.occurrences.add(coming)
    assert (await sweep.run_once()).discarded == 0
    assert len(await pending(store)) == len(coming)


async def test_a_sweep_that_takes_long_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it put off is due again by then; something else than to finish is to be done too."""

    class Late(DatabaseTime):
        looks = 0

        async def now(self) -> datetime:
            self.looks += 1
            assert self.looks < 10
            return await super().now() + self.looks * HOUR

    monkeypatch.setattr("services.scheduler.sweep._LOOK", 1)
    await store.schedules.add([replace(past_schedule(), state=ScheduleState.PAUSED)])
    assert (await Sweep(store, Late(store)).run_once()).discarded == 0


async def test_what_is_paused_is_looked_at_again_later(store: Store, flow: ScheduleFlow, sweep: Sweep) -> None:
    await store.schedules.add([past_schedule()])
    await flow.pause("ns/a")
    assert (await sweep.run_once()).discarded == 0
    later = (await stored(store)).sweep_at
    assert later is not None
    assert later > GONE.instants[-1]
    assert (await sweep.run_once()).discarded == 0
    assert (await stored(store)).state is ScheduleState.PAUSED
