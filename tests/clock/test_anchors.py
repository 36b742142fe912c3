"""Schedules around an anchor that moves: each offset fires once, at the old time or the new one."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from services.scheduler.sweep import Retention, Sweep
from shared.clock.anchors import AnchorFlow
from shared.clock.rules.instants import with_anchor
from shared.clock.rules.occurrences import PARKED, offset_id
from shared.clock.rules.schedules import Definition, Misfire, MisfireMode, Schedule, ScheduleState
from shared.clock.schedules import ScheduleFlow
from shared.core.errors import Conflict, Invalid, Unavailable
from shared.runtime.settings import SchedulerSettings
from shared.store import Store
from shared.time import DatabaseTime
from tests.clock.firing import Firing
from tests.clock.made import AHEAD, CALLBACK, HOUR, LIST, accepted, pending, stored, wanted
from tests.tiers import and_rarely

pytestmark = pytest.mark.native

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
TRAINING = with_anchor(Definition(callback=CALLBACK, offsets_ms=(-3_600_000, 0, 600_000)), AHEAD)


@pytest.fixture
def anchors(store: Store) -> AnchorFlow:
    return AnchorFlow(store, DatabaseTime(store))


async def dues(store: Store, key: str = "a") -> list[datetime]:
    return [each.due for each in await pending(store, key) if each.visible_at != PARKED]


async def test_an_anchor_moves_what_has_not_fired(store: Store, flow: ScheduleFlow, anchors: AnchorFlow) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    firing = Firing(store)
    await firing.run_once(AHEAD - HOUR)
    assert [due for _, due in firing.fired] == [AHEAD - HOUR]
    day = timedelta(days=1)
    moved = await anchors.move("ns/a", AHEAD + day)
    assert moved is not None
    assert await dues(store) == [AHEAD + day, AHEAD + day + 10 * MINUTE]
    await firing.run_once(AHEAD + 2 * day)
    assert sorted(due for _, due in firing.fired[1:]) == [AHEAD + day, AHEAD + day + 10 * MINUTE]
    assert len({message_id for message_id, _ in firing.fired}) == 3


async def test_a_put_of_another_anchor_and_content_fires_nothing_twice(store: Store, flow: ScheduleFlow) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    firing = Firing(store)
    await firing.run_once(AHEAD - HOUR)
    offsets = (-3_600_000, 0, 60_000)
    other = with_anchor(Definition(callback=CALLBACK, offsets_ms=offsets, labels={"a": "b"}), AHEAD + HOUR)
    put = await flow.put(wanted(definition=other))
    assert put.changed
    # One offset has fired, one has moved, one is new, and one is gone.
    assert await dues(store) == [AHEAD + HOUR, AHEAD + HOUR + MINUTE]
    assert (await stored(store)).definition == other
    assert not (await flow.put(wanted(definition=other))).changed
    plain = await flow.put(wanted(definition=LIST))
    assert plain.changed
    assert await dues(store) == list(LIST.instants)


async def test_an_offset_that_is_dropped_and_put_again_stays_fired(store: Store, flow: ScheduleFlow) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    firing = Firing(store)
    await firing.run_once(AHEAD - HOUR)
    await flow.put(wanted(definition=with_anchor(Definition(callback=CALLBACK, offsets_ms=(600_000,)), AHEAD)))
    assert await dues(store) == [AHEAD + 10 * MINUTE]
    await flow.put(wanted(definition=with_anchor(TRAINING, AHEAD + HOUR)))
    assert await dues(store) == [AHEAD + HOUR, AHEAD + HOUR + 10 * MINUTE]


async def test_an_offset_that_another_request_brings_back_stays(
    store: Store, flow: ScheduleFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    align = store.occurrences.align

    async def be_overtaken(moves: Any) -> int:
        monkeypatch.setattr(store.occurrences, "align", align)
        await flow.put(wanted(definition=with_anchor(TRAINING, AHEAD + HOUR)))
        return await align(moves)

    monkeypatch.setattr(store.occurrences, "align", be_overtaken)
    await flow.put(wanted(definition=with_anchor(Definition(callback=CALLBACK, offsets_ms=(0, 600_000)), AHEAD)))
    assert await dues(store) == [AHEAD, AHEAD + HOUR, AHEAD + HOUR + 10 * MINUTE]


async def test_an_offset_that_was_past_waits_for_a_later_anchor(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow
) -> None:
    now = await store.now()
    made = await accepted(flow, wanted(definition=with_anchor(TRAINING, now + 30 * MINUTE)))
    assert made.skipped == (now - 30 * MINUTE,)
    assert len(await dues(store)) == 2
    found = await store.occurrences.find_offsets(made.schedule.owner, made.schedule.generation)
    assert [each.due for each in found if each.visible_at == PARKED] == [now - 30 * MINUTE]
    await flow.pause("ns/a")
    await flow.resume("ns/a")
    assert len(await dues(store)) == 2
    await anchors.move("ns/a", now + 3 * HOUR)
    assert len(await dues(store)) == 3
    [refused] = await flow.accept([wanted("b", with_anchor(TRAINING, now - HOUR))])
    assert isinstance(refused, Invalid)
    assert refused.field == "anchor"


@pytest.mark.parametrize("mode", [MisfireMode.FIRE, MisfireMode.SKIP])
async def test_what_would_be_over_follows_the_misfire_rule(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow, mode: MisfireMode
) -> None:
    now = await store.now()
    definition = with_anchor(
        Definition(callback=CALLBACK, offsets_ms=(0, 86_400_000), misfire=Misfire(mode)), now + HOUR
    )
    made = await accepted(flow, wanted(definition=definition))
    # It was made long ago: else it would not be late.
    await store.occurrences._occurrences.update_many({}, {"$set": {"accepted_at": now - 10 * HOUR}})
    await anchors.move("ns/a", now - HOUR)
    firing = Firing(store)
    await firing.run_once(now)
    assert len(firing.fired) == (mode is MisfireMode.FIRE)
    [outcome] = await store.outcomes.latest(made.schedule.owner, 10)
    assert outcome.result == ("fired" if mode is MisfireMode.FIRE else "skipped")
    assert await dues(store) == [now + 23 * HOUR]


async def test_a_paused_schedule_moves_and_stays_paused(store: Store, flow: ScheduleFlow, anchors: AnchorFlow) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    await flow.pause("ns/a")
    await anchors.move("ns/a", AHEAD + HOUR)
    assert (await stored(store)).state is ScheduleState.PAUSED
    firing = Firing(store)
    await firing.run_once(AHEAD + 10 * HOUR)
    assert firing.fired == []
    await flow.resume("ns/a")
    await firing.run_once(AHEAD + 10 * HOUR)
    assert sorted(due for _, due in firing.fired) == [AHEAD, AHEAD + HOUR, AHEAD + HOUR + 10 * MINUTE]


async def test_a_claimed_occurrence_follows_its_anchor(store: Store, flow: ScheduleFlow, anchors: AnchorFlow) -> None:
    made = await accepted(flow, wanted(definition=TRAINING))
    await store.occurrences._occurrences.update_many({}, {"$set": {"token": "another-scheduler"}})
    await anchors.move("ns/a", AHEAD + HOUR)
    assert await dues(store) == [AHEAD - HOUR, AHEAD, AHEAD + 10 * MINUTE]
    firing = Firing(store)
    await firing.run_once(AHEAD + 20 * MINUTE)
    assert [due for _, due in firing.fired] == []
    assert await dues(store) == [AHEAD, AHEAD + HOUR, AHEAD + HOUR + 10 * MINUTE]
    found = await store.occurrences.find_offsets(made.schedule.owner, made.schedule.generation)
    assert {(each.token, each.visible_at == each.due) for each in found} == {("", True)}


async def test_schedulers_complete_a_move_whose_process_died(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(flow, wanted(definition=TRAINING))

    async def die(*_: object) -> None:
        raise Unavailable("it came no further")

    with monkeypatch.context() as patch:
        patch.setattr(store.occurrences, "align", die)
        with pytest.raises(Unavailable):
            await anchors.move("ns/a", AHEAD - 10 * HOUR)
    assert await anchors.align_all() == 1
    assert await dues(store) == [AHEAD - 11 * HOUR, AHEAD - 10 * HOUR, AHEAD - 10 * HOUR + 10 * MINUTE]
    assert await anchors.align_all() == 0


async def test_a_slow_move_leaves_the_last_anchor(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    find = store.occurrences.find_offsets

    async def be_overtaken(owner: str, generation: str) -> Any:
        monkeypatch.setattr(store.occurrences, "find_offsets", find)
        found = await find(owner, generation)
        await anchors.move("ns/a", AHEAD + HOUR)
        return found

    monkeypatch.setattr(store.occurrences, "find_offsets", be_overtaken)
    await anchors.move("ns/a", AHEAD + 2 * HOUR)
    assert (await stored(store)).definition.anchor == AHEAD + HOUR
    assert await dues(store) == [AHEAD, AHEAD + HOUR, AHEAD + HOUR + 10 * MINUTE]


async def test_a_move_beside_a_claim_is_looked_at_again(store: Store, flow: ScheduleFlow, anchors: AnchorFlow) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    await store.occurrences._occurrences.update_many({}, {"$set": {"token": "another-scheduler"}})
    await anchors.move("ns/a", AHEAD + HOUR)
    # The attempts were refused: the occurrences come back at their old times.
    await store.occurrences._occurrences.update_many({}, {"$unset": {"token": ""}})
    assert await anchors.align_all() == 1
    assert await dues(store) == [AHEAD, AHEAD + HOUR, AHEAD + HOUR + 10 * MINUTE]
    assert await anchors.align_all() == 0


async def test_many_move_by_their_labels_once(store: Store, flow: ScheduleFlow, anchors: AnchorFlow) -> None:
    labelled = Definition(callback=CALLBACK, offsets_ms=(0,), labels={"day": "1"})
    for n in range(20):
        await accepted(flow, wanted(f"k{n}", with_anchor(labelled, AHEAD + n * HOUR)))
    await accepted(flow, wanted("plain", Definition(callback=CALLBACK, instants=(AHEAD,), labels={"day": "1"})))
    await accepted(flow, wanted("other", TRAINING))
    for _ in range(2):
        moved = await anchors.move_all("ns", ["day:1"], timedelta(days=1), "request")
        assert moved == (20, 1)
    assert await dues(store, "k3") == [AHEAD + 27 * HOUR]
    for request in ("another", "request", "another"):
        moved = await anchors.move_all("ns", ["day:1"], timedelta(days=-1), request)
        assert moved == (20, 1)
    assert await dues(store, "k3") == [AHEAD + 3 * HOUR]
    assert await dues(store, "plain") == [AHEAD]
    assert (await stored(store, "other")).definition == TRAINING


async def test_what_cannot_move_says_so(store: Store, flow: ScheduleFlow, anchors: AnchorFlow) -> None:
    assert await anchors.move("ns/a", AHEAD) is None
    await accepted(flow, wanted())
    with pytest.raises(Invalid, match="with an anchor"):
        await anchors.move("ns/a", AHEAD)
    await accepted(flow, wanted("b", TRAINING))
    with pytest.raises(Invalid, match="after 2200"):
        await anchors.move("ns/b", datetime(2200, 12, 31, 23, 59, tzinfo=AHEAD.tzinfo))


async def test_a_finished_schedule_goes_with_its_parked_occurrences(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow
) -> None:
    now = await store.now()
    made = await accepted(flow, wanted(definition=with_anchor(TRAINING, now + 30 * MINUTE)))
    await Firing(store).run_once(now + HOUR)
    await store.schedules._schedules.update_one({}, {"$set": {"sweep_at": now - HOUR}})
    time = DatabaseTime(store)
    await Sweep(store, time).run_once()
    assert (await stored(store)).is_finished
    with pytest.raises(Conflict):
        await anchors.move("ns/a", AHEAD)
    await store.schedules._schedules.update_one({}, {"$set": {"finished_at": now - 10_000 * HOUR}})
    await Retention(store, time, SchedulerSettings()).run_once()
    assert await store.schedules.get("ns/a") is None
    assert await store.occurrences.find_offsets(made.schedule.owner, made.schedule.generation) == []


async def test_retention_keeps_what_a_caller_fires_meanwhile(
    store: Store, flow: ScheduleFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = await store.now()
    await accepted(flow, wanted(definition=with_anchor(TRAINING, now + 30 * MINUTE)))
    await Firing(store).run_once(now + HOUR)
    old = {"finished_at": now - 10_000 * HOUR, "state": ScheduleState.FINISHED.value}
    await store.schedules._schedules.update_one({}, {"$set": old})
    look = store.occurrences.with_pending

    async def look_and_be_overtaken(owners: list[str], anchored: list[str]) -> set[str]:
        seen = await look(owners, anchored)
        assert await flow.fire("ns/a")
        return seen

    monkeypatch.setattr(store.occurrences, "with_pending", look_and_be_overtaken)
    await Retention(store, DatabaseTime(store), SchedulerSettings()).run_once()
    assert [each.kind for each in await pending(store)] == ["asked"]


async def test_a_put_that_was_overtaken_leaves_the_maker(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    adopt = store.schedules.adopt

    async def be_overtaken(schedule: Schedule, made_by: str) -> None:
        await flow.put(replace(wanted(definition=with_anchor(TRAINING, AHEAD + HOUR)), made_by="second"))
        await adopt(schedule, made_by)

    monkeypatch.setattr(store.schedules, "adopt", be_overtaken)
    await flow.put(replace(wanted(definition=TRAINING), made_by="first"))
    assert (await stored(store)).made_by == "second"


async def test_a_move_that_is_overtaken_keeps_the_other_change(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    amend, other = store.schedules.amend, replace(TRAINING, labels={"a": "b"})

    async def be_overtaken(schedule: Schedule, **checks: Any) -> bool:
        monkeypatch.setattr(store.schedules, "amend", amend)
        await flow.put(wanted(definition=other))
        return await amend(schedule, **checks)

    monkeypatch.setattr(store.schedules, "amend", be_overtaken)
    await anchors.move("ns/a", AHEAD + HOUR)
    assert (await stored(store)).definition == with_anchor(other, AHEAD + HOUR)


@pytest.mark.parametrize("other", ["removed", "replaced", "fired"])
async def test_a_put_that_is_overtaken_leaves_no_parked_occurrence(
    store: Store, flow: ScheduleFlow, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = await store.now() + HOUR
    put = wanted(definition=with_anchor(Definition(callback=CALLBACK, offsets_ms=(0, 60_000, 3_600_000)), soon))
    await accepted(flow, wanted(definition=with_anchor(TRAINING, soon)))
    add = store.occurrences.add

    async def be_overtaken(occurrences: Any) -> None:
        monkeypatch.setattr(store.occurrences, "add", add)
        if other == "fired":
            await flow.put(put)
            await Firing(store).run_once(soon + 2 * MINUTE)
        else:
            await flow.remove("ns/a")
        if other == "replaced":
            await flow.put(wanted(definition=LIST))
        await add(occurrences)

    monkeypatch.setattr(store.occurrences, "add", be_overtaken)
    await flow.put(put)
    assert (await stored(store)).definition == put.definition
    left = [soon + HOUR] if other == "fired" else [soon, soon + MINUTE, soon + HOUR]
    assert [each.due for each in await pending(store) if each.offset_ms in put.definition.offsets_ms] == left


async def test_a_move_leaves_the_maker_that_a_put_gives_meanwhile(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    amend = store.schedules.amend

    async def be_overtaken(schedule: Schedule, **checks: Any) -> bool:
        await flow.put(replace(wanted(definition=TRAINING), made_by="second"))
        return await amend(schedule, **checks)

    monkeypatch.setattr(store.schedules, "amend", be_overtaken)
    await anchors.move("ns/a", AHEAD + HOUR)
    assert (await stored(store)).made_by == "second"


async def test_a_move_is_noted_beside_two_that_come_back(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(flow, wanted(definition=replace(TRAINING, labels={"a": "b"})))
    amend = store.schedules.amend

    async def be_overtaken(schedule: Schedule, **checks: Any) -> bool:
        monkeypatch.setattr(store.schedules, "amend", amend)
        for by, request in ((HOUR, "1"), (-HOUR, "2")):
            await anchors.move_all("ns", ["a:b"], by, request)
        return await amend(schedule, **checks)

    monkeypatch.setattr(store.schedules, "amend", be_overtaken)
    await anchors.move_all("ns", ["a:b"], 2 * HOUR, "3")
    assert (await stored(store)).last_moves == ("1", "2", "3")


async def test_a_new_offset_whose_request_died_fires_though_it_is_past_by_now(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    other = Definition(callback=CALLBACK, offsets_ms=(*TRAINING.offsets_ms, 3_600_000))

    async def die(*_: object) -> None:
        raise Unavailable("it came no further")

    with monkeypatch.context() as patch:
        patch.setattr(store.occurrences, "align", die)
        with pytest.raises(Unavailable):
            await flow.put(wanted(definition=with_anchor(other, AHEAD)))
    past = await store.now() - 10 * HOUR
    await anchors.move("ns/a", past)
    assert await dues(store) == [past - HOUR, past, past + 10 * MINUTE, past + HOUR]


async def test_an_offset_that_is_given_again_in_the_past_stays_out(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow
) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    soon = await store.now() + 30 * MINUTE
    few = Definition(callback=CALLBACK, offsets_ms=(0, 600_000))
    await flow.put(wanted(definition=with_anchor(few, AHEAD)))
    await flow.put(wanted(definition=with_anchor(TRAINING, soon)))
    assert await dues(store) == [soon, soon + 10 * MINUTE]
    await anchors.move("ns/a", AHEAD)
    assert await dues(store) == [AHEAD - HOUR, AHEAD, AHEAD + 10 * MINUTE]


async def test_an_occurrence_that_is_claimed_during_a_move_is_looked_at_again(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accepted(flow, wanted(definition=TRAINING))
    align = store.occurrences.align

    async def be_overtaken(moves: Any) -> int:
        monkeypatch.setattr(store.occurrences, "align", align)
        await store.occurrences._occurrences.update_many({}, {"$set": {"token": "another-scheduler"}})
        moved = await align(moves)
        await store.occurrences._occurrences.update_many({}, {"$unset": {"token": ""}})
        return moved

    monkeypatch.setattr(store.occurrences, "align", be_overtaken)
    await anchors.move("ns/a", AHEAD + HOUR)
    assert await dues(store) == [AHEAD - HOUR, AHEAD, AHEAD + 10 * MINUTE]
    assert await anchors.align_all() == 1
    assert await dues(store) == [AHEAD, AHEAD + HOUR, AHEAD + HOUR + 10 * MINUTE]


@pytest.mark.parametrize("rounds", and_rarely(40, rarely=[1_000]))
async def test_an_anchor_that_moves_while_it_fires_fires_each_offset_once(
    store: Store, flow: ScheduleFlow, anchors: AnchorFlow, rounds: int
) -> None:
    for n in range(rounds):
        key, firing, ends = f"k{n}", Firing(store), AHEAD + 100 * HOUR
        made = await accepted(flow, wanted(key, TRAINING))
        moves = (AHEAD + (n % 7 - 3) * MINUTE, AHEAD + HOUR)
        await asyncio.gather(
            firing.run_once(ends), anchors.move(f"ns/{key}", moves[0]),
            firing.run_once(ends), anchors.move(f"ns/{key}", moves[1]),
        )  # fmt: skip
        while await pending(store, key):
            await firing.run_once(ends)
        ids = [offset_id(made.schedule.owner, made.schedule.generation, offset) for offset in TRAINING.offsets_ms]
        assert sorted(message_id for message_id, _ in firing.fired) == sorted(ids)
        for message_id, due in firing.fired:
            offset = timedelta(milliseconds=TRAINING.offsets_ms[ids.index(message_id)])
            assert due - offset in {AHEAD, *moves}
        await flow.remove(f"ns/{key}")
