"""Schedules that their callers cancel, replace, pause and remove while a scheduler has their instants in its hands, and
while series move on."""

import asyncio
import signal
from datetime import datetime, timedelta

import pytest

from services.embedded.processes import free_port
from shared.clock.rules.callbacks import RabbitCallback
from shared.clock.rules.recurrence import Every
from shared.clock.rules.schedules import Definition
from shared.clock.schedules import Accepted, Wanted
from tests.chaos.test_clock_killed import QUEUE, drained, expected, gone, settled
from tests.chaos.test_clock_races import Caller, Version, by_payload, definition
from tests.e2e.clocks import NAMESPACE, measured, receiving, scheduled
from tests.e2e.house import House, Process
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

_TICK = {"CARILLON_SCHEDULER_TICK_SECONDS": "0.5"}
# Enough of each that the slice in the scheduler's hands has some of all.
_EACH = 24


@pytest.mark.parametrize("hands", and_rarely("claimed", rarely=("held",)))
async def test_what_is_taken_back_while_a_scheduler_has_it_never_comes(house: House, hands: str) -> None:
    """The scheduler sleeps while all of it is taken back, with a slice that it has not read, or with all in memory."""
    flow = house.schedules
    async with receiving(house, QUEUE) as receiver:
        due = await house.servers.time.now() + timedelta(seconds=10)
        all_ = await made(house, due)
        holder = await (asleep_with_a_slice(house) if hands == "claimed" else asleep_with_all(house, 6 * _EACH))
        for each in all_["removed"]:
            assert await flow.remove(each.schedule.id)
        for each in all_["cancelled"]:
            assert await flow.cancel(each.schedule.id, each.schedule.definition.instants[0])
        for each in all_["paused"]:
            assert await flow.pause(each.schedule.id)
        later = definition("{}", (await house.servers.time.now() + timedelta(seconds=4),))
        new = [await flow.put(Wanted(NAMESPACE, each.schedule.key, later)) for each in all_["replaced"]]
        holder.send(signal.SIGCONT)
        left = {(each.schedule.key, each.schedule.definition.instants[1]) for each in all_["cancelled"]}
        await gone(house, [*all_["untouched"], *all_["cancelled"], *new])
        await drained(house, receiver)
        assert set(receiver.instants) == expected([*all_["untouched"], *new]) | left
        for each in all_["paused"]:
            assert await flow.resume(each.schedule.id)
        await settled(house, receiver, all_["paused"], [holder])
    assert set(receiver.instants) == expected([*all_["untouched"], *new, *all_["paused"]]) | left
    assert set(receiver.times.values()) == {1}


async def made(house: House, due: datetime) -> dict[str, list[Accepted]]:
    """Some schedules for each thing that may be done to one. What is cancelled has a second instant."""
    twice = {"cancelled": (due, due + timedelta(milliseconds=500))}
    all_ = {}
    for what in ("untouched", "removed", "cancelled", "paused", "replaced"):
        content = definition("{}", twice.get(what, (due,)))
        answers = await house.schedules.accept([Wanted(NAMESPACE, f"{what}-{n}", content) for n in range(_EACH)])
        all_[what] = [answer for answer in answers if isinstance(answer, Accepted)]
    return all_


async def asleep_with_a_slice(house: House) -> Process:
    """A scheduler that has claimed something and read nothing of it."""
    holder = await house.start("scheduler", fault="clock.after_claim=stop", **_TICK)
    await holder.reached("clock.after_claim")
    return holder


async def asleep_with_all(house: House, count: int) -> Process:
    """A scheduler that has read all of it into memory, and fired none. It looks six seconds ahead."""
    port = free_port()
    holder = await house.start("scheduler", CARILLON_HEALTH_PORT=str(port), CARILLON_SCHEDULER_TICK_SECONDS="3")

    async def holds_all() -> bool:
        return await measured(port, "occurrences_held") == count

    await until(holds_all, f"{count} to be held")
    holder.send(signal.SIGSTOP)
    return holder


async def test_what_is_taken_back_right_before_it_goes_out_is_the_last_of_it(house: House) -> None:
    """What the scheduler has found to be there goes out, once; nothing of the series follows it."""
    flow = house.schedules
    async with receiving(house, QUEUE) as receiver:
        holder = await house.start("scheduler", fault="clock.before_publish=stop", **_TICK)
        first = await house.servers.time.now() + timedelta(seconds=4)
        all_ = {what: await a_series(house, what, first) for what in ("removed", "replaced", "paused", "untouched")}
        await holder.reached("clock.before_publish")
        assert await flow.remove(all_["removed"].schedule.id)
        assert await flow.pause(all_["paused"].schedule.id)
        later = await house.servers.time.now() + timedelta(seconds=3)
        new = await flow.put(Wanted(NAMESPACE, "replaced", definition('"new"', (later,))))
        holder.send(signal.SIGCONT)
        await gone(house, [new, all_["removed"], all_["untouched"]])
        await drained(house, receiver)
        in_hand = {("removed", first), ("replaced", first), ("paused", first)}
        assert set(receiver.instants) == in_hand | expected([new, all_["untouched"]])
        assert await flow.resume(all_["paused"].schedule.id)
        await settled(house, receiver, [all_["paused"]], [holder])
    rest = expected([new, all_["untouched"], all_["paused"]])
    assert set(receiver.instants) == in_hand | rest
    assert set(receiver.times.values()) == {1}


async def a_series(house: House, key: str, first: datetime) -> Accepted:
    return await scheduled(house, key, recurrence=Every(1, first), max_occurrences=4)


class SeriesVersion(Version):
    """One recurrence under a key."""

    @property
    def dues(self) -> set[datetime]:
        return {due for _, due in expected([self.accepted])}


class SeriesCaller(Caller):
    """Does as it likes with one key whose contents are all recurrences."""

    async def _replace(self) -> None:
        before = await self._now()
        payload = f'{{"{self._key}":{len(self.versions)}}}'
        wanted = Definition(
            callback=RabbitCallback(queue=QUEUE, payload=payload),
            recurrence=Every(1, before + timedelta(seconds=self._random.uniform(0.2, 1.2))),
            max_occurrences=4,
        )
        accepted = await self._flow.put(Wanted(NAMESPACE, self._key, wanted))
        paused = self._paused
        await self._end(before)
        self.versions.append(SeriesVersion(accepted))
        self._paused = paused

    async def _cancel(self) -> None:
        """An instant of a recurrence cannot be cancelled."""
        await self._pause()


@pytest.mark.alone
async def test_replace_remove_and_pause_race_with_series(house: House) -> None:
    schedulers = [await house.start("scheduler", **_TICK) for _ in range(2)]
    async with receiving(house, QUEUE) as receiver:
        callers = [SeriesCaller(house, number, 3) for number in range(30)]
        await asyncio.gather(*(caller.live(5) for caller in callers))
        versions = [version for caller in callers for version in caller.versions]
        await settled(house, receiver, [version.accepted for version in versions], schedulers)
        came = await by_payload(house, receiver)
    assert set(came) <= {version.payload for version in versions}
    for version in versions:
        version.check(came.get(version.payload, []))
    assert any(version.ended for version in versions)
    assert any(version.pauses for version in versions)
    assert len(came) > len(callers)
