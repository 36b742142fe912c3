"""The machine: callers, schedulers and trouble, in any order."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs

from shared.clock.rules.instants import with_anchor
from shared.clock.rules.schedules import Definition, Schedule, ScheduleState, digest, schedule_id
from shared.clock.schedules import Accepted, ScheduleFlow, Wanted
from shared.core.errors import Conflict, Invalid, Unavailable
from shared.store import Store
from tests.models.clock.shapes import (
    Act,
    Shape,
    acts,
    anchor_changes,
    answers,
    around_anchors,
    calendar_changes,
    excluded_days,
    keys,
    moves,
    ms_of,
    offsets,
    others,
    paces,
    schedulers,
    series_of_days,
    shapes,
    wakes,
    zones,
)
from tests.models.clock.target import Answer
from tests.models.clock.verdict import verdict
from tests.models.clock.walks import ALL, Fate, Walk
from tests.models.clock.world import AT_ONCE, KEYS, Pace, World

Check = Callable[[Walk, Schedule | None, Schedule | None], bool]


class ClockMachine(RuleBasedStateMachine):
    """Each rule is one act of a caller, a scheduler, or fate; see `walks` for what may befall it."""

    def __init__(self, runner: asyncio.Runner, store: Store, chance: Random) -> None:
        super().__init__()
        self._runner = runner
        self.world = World(store)
        self.definitions: dict[str, list[Definition]] = {}
        self._payloads = count(1)
        self._asked: dict[str, datetime] = {}
        # What is random must be the same when an example is run again.
        chance.seed(0)
        runner.run(self.world.clear())

    @initialize(shape=shapes)
    def begin(self, shape: Shape) -> None:
        self._put(KEYS[0], self._new(KEYS[0], shape), AT_ONCE)

    @rule(key=keys, shape=shapes, pace=paces)
    def create(self, key: str, shape: Shape, pace: Pace) -> None:
        self._accept(key, self._new(key, shape), pace)

    @precondition(lambda self: self.definitions)
    @rule(data=st.data(), pace=paces)
    def create_again(self, data: st.DataObject, pace: Pace) -> None:
        key = data.draw(st.sampled_from(sorted(self.definitions)))
        self._accept(key, self._earlier(data, key), pace)

    @rule(key=keys, shape=shapes, pace=paces)
    def put(self, key: str, shape: Shape, pace: Pace) -> None:
        self._put(key, self._new(key, shape), pace)

    @precondition(lambda self: self.definitions)
    @rule(data=st.data(), pace=paces)
    def put_again(self, data: st.DataObject, pace: Pace) -> None:
        key = data.draw(st.sampled_from(sorted(self.definitions)))
        self._put(key, self._earlier(data, key), pace)

    @precondition(lambda self: self._there())
    @rule(data=st.data(), pace=paces)
    def cancel(self, data: st.DataObject, pace: Pace) -> None:
        key = data.draw(st.sampled_from(self._there()))
        life = self.world.ledger.life(key)
        assert life is not None
        due = data.draw(st.sampled_from(sorted(set(life.dues.values())) or [self.world.time.reckon()]))
        self._ask("cancel", key, lambda flow: flow.cancel(schedule_id("ns", key), due), pace)

    @rule(key=keys, pace=paces)
    def remove(self, key: str, pace: Pace) -> None:
        def gone(walk: Walk, before: Schedule | None, after: Schedule | None) -> bool:
            return after is None and walk.result == (before is not None)

        self._ask("remove", key, lambda flow: flow.remove(schedule_id("ns", key)), pace, gone)

    @rule(key=keys, pace=paces)
    def pause(self, key: str, pace: Pace) -> None:
        self._ask("pause", key, lambda flow: flow.pause(schedule_id("ns", key)), pace, _is(ScheduleState.PAUSED))

    @rule(key=keys, pace=paces)
    def resume(self, key: str, pace: Pace) -> None:
        self._ask("resume", key, lambda flow: flow.resume(schedule_id("ns", key)), pace, _is(ScheduleState.ACTIVE))

    @rule(key=keys, again=st.booleans(), pace=paces)
    def fire_by_hand(self, key: str, again: bool, pace: Pace) -> None:
        at = self._asked.get(key) if again else None
        self._asked[key] = at or self.world.time.reckon()
        self._ask("fire by hand", key, lambda flow: flow.fire(schedule_id("ns", key), at=at), pace)

    @rule(pace=paces)
    def retry_letters(self, pace: Pace) -> None:
        if letters := self._run(self.world.letters()):
            self._ask("retry", letters[0].key, lambda flow: flow.retry(letters), pace)

    @precondition(lambda self: self.world.anchored)
    @rule(data=st.data(), ahead=moves, pace=paces)
    def move(self, data: st.DataObject, ahead: int, pace: Pace) -> None:
        anchor = self._at(ahead)

        def moved(walk: Walk, before: Schedule | None, after: Schedule | None) -> bool:
            return after is None or after.definition.anchor == anchor

        key = data.draw(st.sampled_from(self.world.anchored))
        self._judge_asked(key, lambda: self.world.move(key, anchor, pace), moved)

    @precondition(lambda self: self.world.anchored)
    @rule(data=st.data(), other=offsets, ahead=moves, pace=paces)
    def change_offsets(self, data: st.DataObject, other: tuple[int, ...], ahead: int, pace: Pace) -> None:
        """These offsets are dropped if they are there, and given if not. The anchor may move too."""
        key = data.draw(st.sampled_from(self.world.anchored))
        document = self.world.ledger.document(key)
        assert document is not None
        assert document.definition.anchor is not None
        left = {*document.definition.offsets_ms} ^ {*ms_of(other)} or {*ms_of(other)}
        changed = structs.replace(document.definition, offsets_ms=tuple(sorted(left)))
        anchor = data.draw(st.sampled_from([document.definition.anchor, self._at(ahead)]))
        self._put(key, with_anchor(changed, anchor), pace)

    @rule(days=excluded_days, zone=zones, pace=paces)
    def put_calendar(self, days: list[int], zone: str, pace: Pace) -> None:
        today = self.world.time.reckon().date()
        dates = [str(today + timedelta(days=each)) for each in days]
        self._judge(self._run(self.world.put_calendar(dates, zone, pace)))

    @rule(pace=paces)
    def follow(self, pace: Pace) -> None:
        self._judge(self._run(self.world.follow(pace)))

    @precondition(lambda self: self.world.excluding)
    @rule(hours=st.sampled_from([6, 24, 30]))
    def days_pass(self, hours: int) -> None:
        self.world.time.advance(hours * 3_600)

    @rule(pace=paces)
    def sweep(self, pace: Pace) -> None:
        self._judge(self._run(self.world.sweep(pace)))

    @rule(seconds=st.sampled_from([1, 2, 3, 12, 31, 70, 200]))
    def time_passes(self, seconds: int) -> None:
        self.world.time.advance(seconds)

    @rule(scheduler=schedulers, pace=paces)
    def claim(self, scheduler: int, pace: Pace) -> None:
        self._judge(self._run(self.world.claim(scheduler, pace)))

    @rule(scheduler=schedulers, answers=answers, pace=paces)
    def fire(self, scheduler: int, answers: list[Answer], pace: Pace) -> None:
        self._judge(self._run(self.world.fire(scheduler, answers, pace)))

    @rule(scheduler=schedulers, seconds=st.sampled_from([1, 2, 12]), answers=answers, pace=paces)
    def tick_and_fire(self, scheduler: int, seconds: int, answers: list[Answer], pace: Pace) -> None:
        self._judge(self._run(self.world.claim(scheduler, AT_ONCE)))
        self.world.time.advance(seconds)
        self._judge(self._run(self.world.fire(scheduler, answers, pace)))

    @rule(scheduler=schedulers, answers=answers, pace=paces)
    def take_over(self, scheduler: int, answers: list[Answer], pace: Pace) -> None:
        """All that others hold is claimed by this one, when their leases have ended."""
        self.world.time.advance(31)
        self._judge(self._run(self.world.claim(scheduler, AT_ONCE)))
        self.world.time.advance(2)
        self._judge(self._run(self.world.fire(scheduler, answers, pace)))

    @rule()
    def claim_in_vain(self) -> None:
        self._run(self.world.claim_in_vain())

    @rule(scheduler=schedulers, deaths=st.integers(1, 6), steps=st.integers(2, 5))
    def die_of_a_suspect(self, scheduler: int, deaths: int, steps: int) -> None:
        """Process after process dies, most of them at the same step of an attempt."""
        self._run(self.world.claim_in_vain())
        for _ in range(deaths):
            self.take_over(scheduler, [Answer.CONFIRMED], (steps, Fate.DIES))

    @rule(data=st.data(), steps=st.integers(0, 6), others=others, answers=answers, wakes=wakes)
    def fires_meanwhile(
        self, data: st.DataObject, steps: int, others: list[Act], answers: list[Answer], wakes: bool
    ) -> None:
        """While a scheduler stands between two steps of firing, others come and go."""
        self._meet(data, Act.FIRE, steps, others, answers, wakes)

    @rule(data=st.data(), days=st.booleans(), steps=st.integers(0, 6), answers=answers, wakes=wakes)
    def fires_what_moves(self, data: st.DataObject, days: bool, steps: int, answers: list[Answer], wakes: bool) -> None:
        """An anchor moves, or a calendar changes, while a scheduler is between two steps of firing."""
        self.put(KEYS[0], data.draw(series_of_days if days else around_anchors), AT_ONCE)
        changes = data.draw(calendar_changes if days else anchor_changes)
        self._meet(data, Act.FIRE, steps, changes, answers, wakes)

    @rule(data=st.data(), act=acts, steps=st.integers(0, 3), others=others, answers=answers, wakes=wakes)
    def asks_meanwhile(
        self, data: st.DataObject, act: Act, steps: int, others: list[Act], answers: list[Answer], wakes: bool
    ) -> None:
        """While a caller's request stands half-way, others come and go."""
        self._meet(data, act, steps, others, answers, wakes)

    @rule(scheduler=schedulers)
    def crash(self, scheduler: int) -> None:
        self._run(self.world.crash(scheduler))

    @rule(scheduler=schedulers)
    def stop(self, scheduler: int) -> None:
        self._run(self.world.stop(scheduler))

    @precondition(lambda self: self.world.under_way)
    @rule(data=st.data(), pace=paces)
    def wake(self, data: st.DataObject, pace: Pace) -> None:
        number = data.draw(st.integers(0, len(self.world.under_way) - 1))
        walk = self.world.under_way[number]
        self._run(walk.go(*pace))
        self._judge(walk)

    @invariant()
    def nothing_is_broken(self) -> None:
        assert not self.world.ledger.broken

    def teardown(self) -> None:
        """Whoever sleeps wakes up, and time goes on to the end."""
        if self.world.ledger.broken:
            self._run(self._all_die())
            return
        for walk in self.world.under_way:
            self._run(walk.go(ALL, Fate.GOES_ON))
            self._judge(walk)
        self._run(self.world.drain())
        found = self._run(verdict(self.world))
        assert not found, "\n".join(found)

    def _meet(
        self, data: st.DataObject, act: Act, steps: int, others: list[Act], answers: list[Answer], wakes: bool
    ) -> None:
        if not self._run(self.world.pending()):
            self.put(KEYS[0], data.draw(shapes), AT_ONCE)
        there = set(self.world.under_way)
        self._act(data, act, answers[:1], (steps, Fate.SLEEPS))
        mine = [walk for walk in self.world.under_way if walk not in there]
        for each in others:
            self._act(data, each, answers[1:] or answers, AT_ONCE)
        for walk in mine:
            if wakes:
                self._run(walk.go(ALL, Fate.GOES_ON))
                self._judge(walk)
            else:
                self._run(walk.die())

    def _act(self, data: st.DataObject, act: Act, answers: list[Answer], pace: Pace) -> None:
        key = KEYS[0]
        match act:
            case Act.FIRE:
                self.take_over(data.draw(schedulers), answers, pace)
            case Act.CANCEL if self.world.ledger.life(key) is not None:
                self.cancel(data, pace)
            case Act.CANCEL | Act.PUT:
                self.put(key, data.draw(shapes), pace)
            case Act.REMOVE:
                self.remove(key, pace)
            case Act.PAUSE:
                self.pause(key, pace)
            case Act.RESUME:
                self.resume(key, pace)
            case Act.RETRY:
                self.retry_letters(pace)
            case Act.MOVE | Act.OFFSETS if key not in self.world.anchored:
                self.put(key, data.draw(around_anchors), pace)
            case Act.MOVE:
                self.move(data, data.draw(moves), pace)
            case Act.OFFSETS:
                self.change_offsets(data, data.draw(offsets), data.draw(moves), pace)
            case Act.CALENDAR:
                self.put_calendar(data.draw(excluded_days), "UTC", pace)
            case Act.FOLLOW:
                self.follow(pace)

    async def _all_die(self) -> None:
        for walk in self.world.under_way:
            await walk.die()

    def _accept(self, key: str, definition: Definition, pace: Pace) -> None:
        async def one(flow: ScheduleFlow) -> Accepted:
            [answer] = await flow.accept([Wanted("ns", key, definition)])
            if isinstance(answer, Accepted):
                return answer
            raise answer

        self._ask("create", key, one, pace, _has(definition))

    def _put(self, key: str, definition: Definition, pace: Pace) -> None:
        self._ask("put", key, lambda flow: flow.put(Wanted("ns", key, definition)), pace, _has(definition))

    def _ask(
        self,
        name: str,
        key: str,
        operation: Callable[[ScheduleFlow], Coroutine[Any, Any, Any]],
        pace: Pace,
        check: Check | None = None,
    ) -> None:
        self._judge_asked(key, lambda: self.world.call(name, operation, pace), check)

    def _judge_asked(self, key: str, ask: Callable[[], Coroutine[Any, Any, Walk]], check: Check | None) -> None:
        alone = all(walk.process != "api" for walk in self.world.under_way)
        before = self.world.ledger.document(key)
        walk = self._run(ask())
        self._judge(walk)
        if alone and walk.smooth and check is not None:
            after = self.world.ledger.document(key)
            assert check(walk, before, after), f"{walk.name} answered {walk.result}, was {before}, is {after}"

    def _judge(self, walk: Walk | None) -> None:
        if walk is None or walk.died:
            return
        if walk.error is not None and not isinstance(walk.error, (Unavailable, Conflict, Invalid)):
            raise walk.error
        self.world.ledger.concluded(walk)

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(coroutine)

    def _at(self, ahead: int) -> datetime:
        return self.world.time.reckon().replace(microsecond=0) + timedelta(seconds=ahead)

    def _new(self, key: str, shape: Shape) -> Definition:
        definition = shape.at(self.world.time.reckon(), f'"{next(self._payloads)}"')
        self.definitions.setdefault(key, []).append(definition)
        return definition

    def _earlier(self, data: st.DataObject, key: str) -> Definition:
        return data.draw(st.sampled_from(self.definitions[key][::-1]))

    def _there(self) -> list[str]:
        return [key for key in self.world.ledger.lives if self.world.ledger.life(key) is not None]


def _is(state: ScheduleState) -> Check:
    def check(walk: Walk, before: Schedule | None, after: Schedule | None) -> bool:
        return after is None if walk.result is None else after is not None and after.state is state

    return check


def _has(definition: Definition) -> Check:
    def check(walk: Walk, before: Schedule | None, after: Schedule | None) -> bool:
        return after is not None and after.digest == digest(definition)

    return check
