"""Callers that cancel, replace and pause while two schedulers fire what comes due.

What a caller has taken back before its instant never comes: right before it fires, each is looked up once more.
"""

import asyncio
import random
import signal
from datetime import datetime, timedelta

import pytest
from msgspec import Struct, field

from shared.clock.rules.callbacks import RabbitCallback
from shared.clock.rules.schedules import Definition, schedule_id
from shared.clock.schedules import Accepted, Wanted
from tests.chaos.test_clock_killed import QUEUE, drained, gone
from tests.e2e.clocks import NAMESPACE, Received, Receiver, receiving
from tests.e2e.house import House
from tests.tiers import and_rarely

pytestmark = [pytest.mark.chaos, pytest.mark.native]

# What two clocks may differ by that both follow the database's.
_CLOCKS = timedelta(milliseconds=250)
_TICK = {"CARILLON_SCHEDULER_TICK_SECONDS": "0.5"}


class Version(Struct):
    """One content of a key, and what its caller did to it. Times are the database's, each taken on the safe side."""

    accepted: Accepted
    ended: datetime | None = None
    cancelled: dict[datetime, datetime] = field(default_factory=dict)
    pauses: list[tuple[datetime, datetime]] = field(default_factory=list)

    @property
    def payload(self) -> bytes:
        callback = self.accepted.schedule.definition.callback
        assert isinstance(callback, RabbitCallback)
        return callback.payload.encode()

    @property
    def dues(self) -> set[datetime]:
        return set(self.accepted.schedule.definition.instants) - set(self.accepted.skipped)

    def check(self, came: list[tuple[Received, datetime]]) -> None:
        """`came` are this version's messages, each with the database's time at which it came."""
        ids = {(each.due, each.message_id) for each, _ in came}
        assert len(ids) == len({each.due for each, _ in came}), "an instant has one message id"
        assert {each.due for each, _ in came} <= self.dues
        # Resuming lets go whatever the pause held back, also what was just on its way.
        assert self.pauses or len(came) == len(ids), "nobody died, so nothing is repeated"
        for each, at in came:
            assert at + _CLOCKS >= each.due, "early"
            self.check_allowed(each.due, at)
        if self.ended is None:
            missing = self.dues - set(self.cancelled) - {each.due for each, _ in came}
            assert not missing, f"lost: {missing}"

    def check_allowed(self, due: datetime, at: datetime) -> None:
        assert self.ended is None or due <= self.ended + _CLOCKS, "came although it was removed or replaced"
        assert due not in self.cancelled or due <= self.cancelled[due] + _CLOCKS, "came although it was cancelled"
        for paused, resumed in self.pauses:
            assert at >= resumed or due <= paused + _CLOCKS, "came while it was paused"


class Caller:
    """Does as it likes with one key, one thing after the other."""

    def __init__(self, house: House, number: int, seed: int) -> None:
        self._house = house
        self._flow = house.schedules
        self._random = random.Random(seed * 1_000 + number)
        self._key = f"caller-{number}"
        self._id = schedule_id(NAMESPACE, self._key)
        self._paused: datetime | None = None
        self.versions: list[Version] = []

    async def live(self, moves: int) -> None:
        await self._replace()
        for _ in range(moves):
            await asyncio.sleep(self._random.uniform(0, 1.4))
            if self._current is None:
                await self._replace()
            elif self._paused is not None:
                await self._random.choice([self._resume, self._resume, self._replace, self._remove])()
            else:
                await self._random.choice([self._pause, self._pause, self._replace, self._remove, self._cancel])()
        if self._paused is not None:
            await self._resume()

    @property
    def _current(self) -> Version | None:
        return self.versions[-1] if self.versions and self.versions[-1].ended is None else None

    async def _replace(self) -> None:
        now = await self._now()
        instants = tuple(sorted(now + timedelta(seconds=self._random.uniform(0.4, 4)) for _ in range(6)))
        payload = f'{{"{self._key}":{len(self.versions)}}}'
        before = await self._now()
        accepted = await self._flow.put(Wanted(NAMESPACE, self._key, definition(payload, instants)))
        paused = self._paused
        await self._end(before)
        self.versions.append(Version(accepted))
        self._paused = paused  # a pause outlives the content

    async def _remove(self) -> None:
        before = await self._now()
        assert await self._flow.remove(self._id)
        await self._end(before)

    async def _end(self, before: datetime) -> None:
        if (current := self._current) is not None:
            self._end_pause(before)
            current.ended = await self._now()

    async def _cancel(self) -> None:
        assert self._current is not None
        due = self._random.choice(sorted(self._current.dues))
        if await self._flow.cancel(self._id, due):
            self._current.cancelled[due] = await self._now()

    async def _pause(self) -> None:
        assert await self._flow.pause(self._id)
        self._paused = await self._now()

    async def _resume(self) -> None:
        before = await self._now()
        assert await self._flow.resume(self._id)
        self._end_pause(before)

    def _end_pause(self, resumed: datetime) -> None:
        if self._paused is not None:
            self.versions[-1].pauses.append((self._paused, resumed))
        self._paused = None

    async def _now(self) -> datetime:
        return await self._house.servers.time.now()


@pytest.mark.alone
@pytest.mark.parametrize("seed", and_rarely(1, rarely=(2,)))
async def test_cancel_replace_and_pause_race_with_firing(house: House, seed: int) -> None:
    schedulers = [await house.start("scheduler", **_TICK) for _ in range(2)]
    async with receiving(house, QUEUE) as receiver:
        callers = [Caller(house, number, seed) for number in range(40)]
        await asyncio.gather(*(caller.live(10) for caller in callers))
        versions = [version for caller in callers for version in caller.versions]
        await gone(house, [version.accepted for version in versions])
        for scheduler in schedulers:
            scheduler.send(signal.SIGTERM)
        assert [await scheduler.gone() for scheduler in schedulers] == [0, 0], house.logs()
        await drained(house, receiver)
        came = await by_payload(house, receiver)
    assert set(came) <= {version.payload for version in versions}
    for version in versions:
        version.check(came.get(version.payload, []))
    # The races took place: some of it was taken back, and some came.
    assert any(version.ended for version in versions)
    assert any(version.cancelled for version in versions)
    assert any(version.pauses for version in versions)
    assert len(came) > len(callers)


async def by_payload(house: House, receiver: Receiver) -> dict[bytes, list[tuple[Received, datetime]]]:
    """What came, each with the database's time of its coming."""
    zero = await house.servers.time.now() - timedelta(seconds=asyncio.get_running_loop().time())
    came: dict[bytes, list[tuple[Received, datetime]]] = {}
    for each in receiver.all:
        came.setdefault(each.body, []).append((each, zero + timedelta(seconds=each.at)))
    return came


def definition(payload: str, instants: tuple[datetime, ...]) -> Definition:
    # To the millisecond, as instants are read by the API.
    whole = {each.replace(microsecond=each.microsecond // 1000 * 1000) for each in instants}
    return Definition(callback=RabbitCallback(queue=QUEUE, payload=payload), instants=tuple(sorted(whole)))
