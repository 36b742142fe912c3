"""Whoever reads a job while it is sent, held, stopped and retried: state, figures and progress of one read add up."""

import asyncio
import json
from collections.abc import Sequence
from random import Random
from typing import Any
from uuid import UUID

import pytest
from msgspec import Struct
from msgspec.structs import replace

from services.api.jobs.job_view import JobAnswers
from services.wiring.api import account_jobs
from services.wiring.rooms import Rooms
from shared.accounts.rules.apps import App
from shared.core.errors import CarillonError
from shared.jobs.rules.batches import Totals
from shared.jobs.rules.jobs import Job, JobStatus
from shared.messages.rules.ledger import MessageState
from tests.models.messages.people import APP
from tests.models.messages.processes import rooms_of
from tests.models.messages.weather import MessageWeather
from tests.models.messages.world import World
from tests.models.simulated.database import Database
from tests.models.simulated.simulation import Process

pytestmark = pytest.mark.native

SHOP = App(id=APP, name=APP, bundle_id="com.example.shop", created_by="ana", created_at=0, updated_at=0)
OFTEN = 0.2
FAIR = MessageWeather(length=300, crowded=True, news=0.1, click=0.03)
ROUGH = replace(FAIR, slow=0.2, lost=0.1, busy=0.1, refuses=0.2, dies=0.003, unanswered=0.01)


class Reading(Struct, frozen=True):
    """A job as the API shows it, and its sums in lists. Each of the rounds was read before or behind them."""

    job: dict[str, Any]
    listed: Totals
    rounds: frozenset[int]

    def check(self) -> None:
        job, messages = self.job, self.job["messages"]
        done = messages["planned"] - messages["unsent"] - messages["sending"]
        assert messages["planned"] == sum(messages[state] for state in MessageState), job
        assert job["totalTokens"] == messages["planned"], job
        assert job["completedTokens"] == job["sent"] + job["failed"] + job["skipped"] == done, job
        assert sum(job["reasons"].values()) == job["failed"] + job["skipped"], job
        assert 0 <= self.listed.done <= self.listed.planned, self.listed
        if job["state"] == JobStatus.COMPLETED:
            assert (messages["unsent"], messages["sending"]) == (0, 0), job


class ReadWorld(World):
    """A world in which an API process reads the jobs again and again, beside all that happens."""

    def __init__(self, database: Database, seed: int, weather: MessageWeather) -> None:
        super().__init__(database, seed, weather)
        self.readings: list[Reading] = []
        self._looks = Random(seed)
        self._look: asyncio.Task[None] | None = None
        self._api: tuple[Process, Rooms] | None = None

    def _draw_job(self, number: int) -> Job:
        return replace(super()._draw_job(number), id=str(UUID(int=number + 1)))

    def _choose(self) -> bool:
        is_reading = self._look is not None and not self._look.done()
        if is_reading or self._looks.random() > OFTEN:
            return super()._choose()
        if self._api is None or self._api[0].dead:
            process = self.simulation.start("user who reads")
            self._api = process, rooms_of(process, self.servers, self.settings)
        process, rooms = self._api
        self._look = process.run(self._read(rooms))
        return True

    async def _read(self, rooms: Rooms) -> None:
        store, job = rooms.servers.store, self._looks.choice(self.jobs)
        try:
            before = await store.jobs.view(job.key)
            if before is None:
                return
            answers = JobAnswers(rooms.servers.store, rooms.jobs.watch, account_jobs(rooms))
            shown = await answers.show(before, SHOP, exact=self._looks.random() < OFTEN)
            listed = (await rooms.jobs.watch.measure([before]))[job.id].totals
            after = await store.jobs.view(job.key)
        except CarillonError:
            return
        assert after is not None
        self.readings.append(Reading(json.loads(shown.content), listed, frozenset({before.round, after.round})))


@pytest.mark.parametrize(
    ("weather", "seeds"),
    [pytest.param(FAIR, (2, 3), id="fair", marks=pytest.mark.slow), pytest.param(ROUGH, (2, 3), id="rough")],
)
def test_what_is_read_of_a_job_adds_up(database: Database, weather: MessageWeather, seeds: tuple[int, ...]) -> None:
    seen = set[tuple[str, bool]]()
    for seed in seeds:
        world = ReadWorld(database, seed, weather)
        world.run()
        check_in_turn(world.readings)
        seen |= {(each.job["state"], each.job["completedTokens"] < each.job["totalTokens"]) for each in world.readings}
    assert {(JobStatus.RUNNING, True), (JobStatus.PAUSED, True), (JobStatus.COMPLETED, False)} <= seen


def check_in_turn(readings: Sequence[Reading]) -> None:
    """Each adds up, and none tells of less than the one before, unless a retry has begun."""
    done: dict[tuple[str, int], tuple[int, int]] = {}
    for reading in readings:
        reading.check()
        if len(reading.rounds) == 1:
            round_, now = (reading.job["id"], *reading.rounds), (reading.job["completedTokens"], reading.listed.done)
            assert all(later >= earlier for later, earlier in zip(now, done.get(round_, (0, 0)), strict=True)), reading
            done[round_] = now
