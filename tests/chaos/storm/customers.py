"""What is asked for during a storm: jobs and schedules, some of them paused, resumed, stopped or deleted."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, TypeVar

from carillon.wire.clock import Retry
from shared.clock.rules.callbacks import RabbitCallback
from shared.clock.rules.schedules import Definition, schedule_id
from shared.clock.schedules import Accepted, Wanted
from shared.core.errors import Conflict, Invalid, Unavailable
from shared.core.ids import Idempotency
from shared.jobs.rules.events import Doer
from shared.jobs.rules.jobs import JobStatus
from tests.chaos.test_clock_killed import expected
from tests.e2e.clocks import NAMESPACE
from tests.e2e.house import House
from tests.waiting import until

DEVICES = 3_000
QUEUE = "storm.queue"
A_STORM = Doer("user", "a storm")
_ANSWERED_WITHIN = 120.0
_BETWEEN_JOBS = (1.0, 5.0)
_BETWEEN_SCHEDULES = (0.5, 2.0)

AnyAnswer = TypeVar("AnyAnswer")


async def insist(ask: Callable[[], Awaitable[AnyAnswer]]) -> AnyAnswer:
    """Ask until there is an answer, as a caller does whose requests are safe to repeat."""
    answers: list[AnyAnswer] = []

    async def is_answered() -> bool:
        try:
            answers.append(await ask())
        except Unavailable:
            await asyncio.sleep(0.3)
        return bool(answers)

    await until(is_answered, "an answer", _ANSWERED_WITHIN)
    return answers[0]


class Pushers:
    """Callers who post jobs to all devices of the house; `jobs` holds the keys of what they have posted."""

    def __init__(self, house: House, chance: Random) -> None:
        self._house = house
        self._chance = chance
        self.jobs: list[str] = []

    async def post(self, seconds: float) -> None:
        """Post jobs for so long; returns when nothing more will be asked of any."""
        fates = (self._leave_alone, self._leave_alone, self._pause_and_resume, self._pause_and_resume, self._stop)
        async with asyncio.TaskGroup() as fated:
            deadline = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(self._chance.uniform(*_BETWEEN_JOBS))
                key = await self._start()
                self.jobs.append(key)
                fated.create_task(self._chance.choice(fates)(key, Random(self._chance.random())))

    async def _start(self) -> str:
        fields: dict[str, Any] = {"idempotency": Idempotency(secrets.token_hex(8), "the same request")}
        if self._chance.random() < 0.3:
            starts_in = self._chance.uniform(0.5, 6.0)
            at = await insist(self._house.servers.time.now) + timedelta(seconds=starts_in)
            fields |= {"starts_at": int(at.timestamp() * 1000) * 1_000_000, "status": JobStatus.SCHEDULED}
        job = self._house.job(**fields)
        started, _ = await insist(lambda: self._house.jobs.start(job))
        return started.key

    async def _leave_alone(self, key: str, chance: Random) -> None:
        """Most jobs are posted and forgotten."""

    async def _pause_and_resume(self, key: str, chance: Random) -> None:
        for _ in range(chance.randint(1, 3)):
            await asyncio.sleep(chance.uniform(0.1, 4.0))
            await insist(lambda: self._house.jobs.pause(key, by=A_STORM))
            await asyncio.sleep(chance.uniform(0.1, 4.0))
            await insist(lambda: self._house.jobs.resume(key, by=A_STORM))

    async def _stop(self, key: str, chance: Random) -> None:
        await asyncio.sleep(chance.uniform(0.1, 6.0))
        await insist(lambda: self._house.jobs.stop(key, by=A_STORM))


class Planners:
    """Callers who make lists of instants; `promised` holds what must come, `deleted` what may."""

    def __init__(self, house: House, chance: Random) -> None:
        self._house = house
        self._chance = chance
        self.promised: set[tuple[str, datetime]] = set()
        self.deleted: set[tuple[str, datetime]] = set()

    async def schedule(self, seconds: float) -> None:
        """Make schedules for so long; returns when nothing more will be asked of any."""
        fates = (self._leave_alone, self._leave_alone, self._pause_and_resume, self._delete)
        async with asyncio.TaskGroup() as fated:
            deadline = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(self._chance.uniform(*_BETWEEN_SCHEDULES))
                wanted = await self._wanted()
                [answer] = await insist(partial(self._house.schedules.accept, [wanted]))
                if not isinstance(answer, Accepted):
                    # An outage lasted until none of its instants lay ahead.
                    assert isinstance(answer, Invalid), answer
                    continue
                dues = expected([answer])
                fate = self._chance.choice(fates)
                (self.deleted if fate == self._delete else self.promised).update(dues)
                fated.create_task(fate(wanted.key, Random(self._chance.random())))

    async def _wanted(self) -> Wanted:
        now = await insist(self._house.servers.time.now)
        first = now.replace(microsecond=0) + timedelta(seconds=self._chance.randint(3, 20))
        instants = tuple(first + timedelta(milliseconds=250 * n) for n in range(self._chance.randint(1, 20)))
        callback = RabbitCallback(queue=QUEUE, payload="{}")
        # The queue and the broker may be away for as long as a storm lasts.
        retry = Retry(attempts=1_000, first_delay_seconds=1, factor=1.0)
        return Wanted(NAMESPACE, secrets.token_hex(6), Definition(callback=callback, instants=instants, retry=retry))

    async def _leave_alone(self, key: str, chance: Random) -> None:
        """Most schedules are made and forgotten."""

    async def _pause_and_resume(self, key: str, chance: Random) -> None:
        id = schedule_id(NAMESPACE, key)
        # Paused while its instants come due, and resumed while some are held back.
        await asyncio.sleep(chance.uniform(0.1, 20))
        # All of it may have come by then.
        with suppress(Conflict):
            await insist(lambda: self._house.schedules.pause(id))
            await asyncio.sleep(chance.uniform(0.5, 10))
            await insist(lambda: self._house.schedules.resume(id))

    async def _delete(self, key: str, chance: Random) -> None:
        await asyncio.sleep(chance.uniform(0.1, 25))
        await insist(lambda: self._house.schedules.remove(schedule_id(NAMESPACE, key)))
