"""The world of one seed: accounts, jobs, processes and trouble, until everything has settled."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial

from msgspec.structs import replace

from services.wiring.rooms import Rooms
from shared.core.errors import CarillonError, Conflict, Unavailable
from shared.jobs.rules.events import Doer
from shared.jobs.rules.jobs import Job
from shared.jobs.rules.templates import Template
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import Credential, CredentialStatus, OnUnknown, SendOrder, SendRetry
from shared.messages.rules.jobs import MESSAGE_SERVICE, Halt, MessageOptions, options_as_fields
from shared.messages.rules.ledger import MessageState, News, hear
from shared.messages.store_ledger import EntryChange, WriteResult
from tests.models.messages import processes
from tests.models.messages.people import APP, COLUMN, People
from tests.models.messages.processes import BEGINNING, DatabaseClock, ModelServers, settings_for
from tests.models.messages.promises import Promise, Promises
from tests.models.messages.provider import KIND, ModelProvider, Told
from tests.models.messages.weather import MessageWeather, draw
from tests.models.simulated.database import Database
from tests.models.simulated.simulation import Process
from tests.models.simulated.steps import finish
from tests.models.simulated.worlds import Broken, Run, SimulatedWorld
from tests.queues import QUEUES

PATIENCE_SECONDS = 3_600.0
"""After the end of all troubles: what has not settled by then never will."""

MOST_CHOICES = 30_000
_RESTART = (0.0, 0.0, 5.0, 60.0)
_LAGS = (0.002, 0.01, 0.05)
_RATES = (0.5, 1.5, 4.0, 10.0, 40.0)
_SHARED_RATES = (10.0, 40.0)
_RETRIES = 2
_CLICKS = ("pause", "pause", "resume", "resume", "stop", "retry", "rate", "suspend", "activate")
_RESENT = (MessageState.FAILED, MessageState.UNSENT, MessageState.UNKNOWN)
ANA = Doer("user", "ana@example.com")


class World(SimulatedWorld):
    """Everything of one seed."""

    weather: MessageWeather

    def __init__(self, database: Database, seed: int, weather: MessageWeather | None = None) -> None:
        super().__init__(seed, weather, draw)
        if not self.weather.early:
            self.simulation.weather = self.weather.clear_up()
        loop = self.simulation.loop
        self.clock = DatabaseClock(loop.time)
        accounts, jobs, most = ((1,), (2,), 12) if self.weather.crowded else ((1, 1, 2), (1, 1, 2), 6)
        self.credentials = [self._draw_credential(name) for name in ("x", "y")[: self.chance.choice(accounts)]]
        self.jobs = [self._draw_job(number) for number in range(self.chance.choice(jobs))]
        people = People({job.table: range(1, 1 + self.chance.randint(most // 3, most)) for job in self.jobs})
        provider = ModelProvider(self.chance, loop.time, self.simulation.strikes)
        self.servers = ModelServers(database, people, provider, self.clock, lambda _: None)
        self.settings = settings_for(self.weather.patience)
        self.promises = Promises(self.servers, self.weather, loop.time)
        self.simulation.check = self.promises.check
        self._workers = self.chance.choice((1, 2, 2))
        self._retries = self.chance.randint(0, _RETRIES)
        self._begun = 0

    def run(self) -> Run:
        shared = processes.shared_blocks(self.chance) if self.weather.shared else nullcontext()
        with processes.tables_of_the_model(), shared:
            return super().run()

    def _draw_credential(self, name: str) -> Credential:
        chance = self.chance
        return Credential(
            id=name,
            app_id=APP,
            name=name,
            kind=KIND,
            fields={"safe": chance.random() < 0.2},
            rate=chance.choice(_SHARED_RATES if self.weather.shared else _RATES),
            max_in_flight=chance.choice((1, 20) if self.weather.crowded else (1, 2, 20)),
            order=chance.choice((SendOrder.AGE, SendOrder.AGE, SendOrder.SHARES)),
            retry=SendRetry(attempts=chance.choice((2, 3)), first_delay_seconds=chance.choice((0.5, 5.0))),
            test_recipient="ana",
            created_by="ana",
            created_at=BEGINNING,
            updated_at=BEGINNING,
        )

    def _draw_job(self, number: int) -> Job:
        chance = self.chance
        options = MessageOptions(
            channel=Channel.OTHER,
            recipient_column=COLUMN,
            on_unknown=chance.choice((OnUnknown.HOLD, OnUnknown.HOLD, OnUnknown.RETRY)),
            halt=chance.choice((None, None, Halt(0.1, 1))),
            share=chance.choice((1, 3)),
            batch_size=2 if self.weather.crowded else chance.choice((2, 3, 6)),
        )
        name = "abc"[number]
        return Job(
            id=name,
            incarnation=f"1{name}",
            app_id=APP,
            app_name=APP,
            service=MESSAGE_SERVICE,
            credential_id=chance.choice(self.credentials).id,
            table_kind=name,
            options=options_as_fields(options),
            template_names=("hello",),
            created_by="ana",
            group_id="",
            created_at=number + 1,
        )

    def _begin(self) -> None:
        database = self.servers.database
        database.clear()
        database.now = self.clock.now
        store = database.store()
        finish(store.templates.add(TEMPLATE))
        for credential in self.credentials:
            finish(store.credentials.add(credential))
        finish(self.servers.broker.setup(QUEUES))
        for number in range(self._workers):
            self._start(f"worker {number}")
        self._start("scheduler")
        for job in self.jobs:
            self._start(f"client {job.id}")

    def _start(self, name: str) -> None:
        """A process; or a client, which posts its job until somebody answers."""
        if name.startswith("client"):
            self._act(name, next(partial(_post, job) for job in self.jobs if name.endswith(job.id)))
            return
        make = processes.scheduler if name == "scheduler" else processes.worker
        process = self.simulation.start(name)
        for component in make(process, self.servers, self.settings):
            _ = process.run(component.start())

    def _act(self, name: str, work: Callable[[Rooms], Awaitable[None]]) -> None:
        """Somebody does something, by an API process of their own."""
        process = self.simulation.start(name)
        done = process.run(_try(work, processes.rooms_of(process, self.servers, self.settings)))
        done.add_done_callback(lambda _: self.simulation.forget(process))

    def _choose(self) -> bool:
        """Whether something comes now that is no step of a process."""
        simulation = self.simulation
        if simulation.choices > MOST_CHOICES:
            raise Broken(Promise.NEVER, f"{MOST_CHOICES} choices")
        if not self._begun and (self.weather.early or self.promises.are_planned(len(self.jobs))):
            self._begun, simulation.weather = simulation.choices, self.weather
        if self._over_at is None and self._begun and simulation.choices >= self._begun + self.weather.length:
            self._clear_up()
            return False
        if self.servers.provider.news and simulation.strikes("news"):
            self._tell()
            return True
        return self._over_at is None and self._begun > 0 and self._trouble()

    def _trouble(self) -> bool:
        simulation = self.simulation
        process = self.chance.choice(simulation.processes) if simulation.processes else None
        if process and simulation.strikes("dies"):
            self._kill(process)
        elif process and simulation.strikes("sleeps"):
            simulation.put_to_sleep(process)
        elif process and process.subscriptions and simulation.strikes("cut"):
            self.chance.choice(process.subscriptions).leave("the connection was cut")
        elif self.servers.published and simulation.strikes("doubled"):
            finish(self.servers.broker.publish(*self.chance.choice(self.servers.published)))
        elif simulation.strikes("lag"):
            simulation.loop.now += self.chance.choice(_LAGS)
        elif simulation.strikes("another_clock"):
            self.clock.give_way(self.chance)
            self.servers.database.clock = self.clock.name
        elif simulation.strikes("click"):
            self._click()
        else:
            return False
        return True

    def _kill(self, process: Process) -> None:
        self.simulation.kill(process)
        if not process.name.startswith(("user", "news")):
            delay = self.chance.choice(_RESTART)
            self.simulation.loop.call_later(delay, self._start, process.name)

    def _tell(self) -> None:
        """The provider calls back, with any of its news."""
        news = self.servers.provider.news
        told = news.pop(self.chance.randrange(len(news)))
        self._act(f"news {len(self.servers.provider.calls)}", partial(_fold, told))

    def _click(self) -> None:
        verb = self.chance.choice(_CLICKS)
        job, credential = self.chance.choice(self.jobs), self.chance.choice(self.credentials)
        self.simulation.trace.add(self.simulation.loop.now, "", f"a user wants to {verb}", (job, credential.id))
        self._users += 1
        match verb:
            case "retry":
                work = self._retry(job)
            case "rate":
                work = partial(_change_rate, credential.id, self.chance.choice(_RATES))
            case "suspend":
                work = partial(_move, credential.id, CredentialStatus.SUSPENDED)
            case "activate":
                work = partial(_move, credential.id, CredentialStatus.ACTIVE)
            case _:
                work = partial(_ask, verb, job)
        self._act(f"user {self._users}", work)

    def _retry(self, job: Job) -> Callable[[Rooms], Awaitable[None]]:
        states = self.chance.sample(_RESENT, self.chance.randint(1, len(_RESENT)))
        return partial(_take_up, job, states)

    def _rest(self) -> None:
        """Nobody can go on but with time: all is over, or has to be helped."""
        if self.promises.all_closed and not self.simulation.late and not self.simulation.waiting:
            self._close()
        elif self._over_at is None:
            return
        elif self.simulation.loop.now > self._over_at + PATIENCE_SECONDS:
            raise Broken(Promise.NEVER, "; ".join(self.promises.unsettled()))
        else:
            self._help()

    def _close(self) -> None:
        if self._retries:
            self._retries -= 1
            self._users += 1
            self._act(f"user {self._users}", self._retry(self.chance.choice(self.jobs)))
            return
        super()._close()

    def _help(self) -> None:
        for credential in self.credentials:
            if self.promises.is_shut(credential.id):
                self._act("user", partial(_move, credential.id, CredentialStatus.ACTIVE))
        for job in self.jobs:
            if self.promises.is_held(job.key):
                self._act("user", partial(_ask, "resume", job))


TEMPLATE = Template(id="t", app_id=APP, name="hello", locale="en", body={"text": "hi"})


async def _ask(verb: str, job: Job, rooms: Rooms) -> None:
    await getattr(rooms.jobs.flow, verb)(job.key)


async def _take_up(job: Job, states: list[MessageState], rooms: Rooms) -> None:
    now = await rooms.servers.store.jobs.view(job.key)
    if now is not None:
        await rooms.messages.retry.retry(now, states, by=ANA)


async def _change_rate(credential_id: str, rate: float, rooms: Rooms) -> None:
    flow = rooms.messages.credentials
    await flow.change(await flow.require(credential_id), lambda present: replace(present, rate=rate))


async def _move(credential_id: str, to: CredentialStatus, rooms: Rooms) -> None:
    flow, feed = rooms.messages.credentials, rooms.messages.feed
    await flow.move(await flow.require(credential_id), to)
    await feed.feed_credential(credential_id)


async def _fold(told: Told, rooms: Rooms) -> None:
    """As whoever hears callbacks does."""
    store = rooms.servers.store
    while True:
        entry = (await store.messages.with_ids([told.message])).get(told.message)
        news = News(state=told.state, at=await store.now(), attempt=told.attempt, reason=told.reason)
        after = None if entry is None else hear(entry, news)
        if after is None or await store.messages.fold([EntryChange(entry, after)]) is not WriteResult.STALE:
            return


async def _post(job: Job, rooms: Rooms) -> None:
    """As a client does that has no answer."""
    while True:
        try:
            await rooms.jobs.flow.start(job)
        except Unavailable:
            await asyncio.sleep(1)
        except Conflict:
            return
        else:
            return


async def _try(work: Callable[[Rooms], Awaitable[None]], rooms: Rooms) -> None:
    try:
        await work(rooms)
    except CarillonError:
        return
