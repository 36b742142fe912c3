"""The world of one seed: jobs, devices, processes and trouble, until everything has settled."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from services.wiring.rooms import JobsRoom
from shared.core.errors import CarillonError, Conflict, Unavailable
from shared.core.instants import ns
from shared.jobs.rules.groups import Group, ZoneJobStart, zone_jobs
from shared.jobs.rules.jobs import Job
from shared.jobs.rules.templates import Template
from shared.runtime.bus_settings import BusSettings
from tests.models.push import processes
from tests.models.push.devices import PushTable
from tests.models.push.processes import BEGINNING, ModelClock, ModelServers, settings_for
from tests.models.push.promise import Promise
from tests.models.push.promises import Promises
from tests.models.push.side_promises import SidePromises
from tests.models.push.weather import Weather, draw
from tests.models.simulated.database import Database
from tests.models.simulated.simulation import Process, Step
from tests.models.simulated.steps import finish
from tests.models.simulated.worlds import Broken, SimulatedWorld
from tests.queues import QUEUES

APP = "shop"
PATIENCE_SECONDS = 3_600.0
"""After the end of all troubles: what has not settled by then never will."""

MOST_CHOICES = 30_000
_MOST_DEVICES = 20
_RESTART = (0.0, 0.0, 5.0, 60.0)
_GROUP_ID = "00000000-0000-4000-8000-000000000001"
_WHOLE_GROUPS = 0.6
_LATER_ZONES = (0, 0, 20)


class World(SimulatedWorld):
    """Everything of one seed."""

    weather: Weather

    def __init__(self, database: Database, seed: int, weather: Weather | None = None) -> None:
        super().__init__(seed, weather, draw)
        self.slots = self.chance.choice((1, 2, 2, 2, 3))
        devices, jobs = ((2, 4), 1) if self.weather.small else ((3, 10), self.chance.choice((1, 1, 2)))
        self.simulation.check = self._check
        self.clock = ModelClock(self.simulation.loop.time)
        self.devices = PushTable([10 * number for number in range(1, 1 + self.chance.randint(*devices))])
        self.servers = ModelServers(database, self.devices, self.clock, self._hear)
        self.settings = settings_for(self.weather)
        self.group = self._draw_group() if self.weather.grouped else None
        self.jobs = [_job(name) for name in "ab"[:jobs]] if self.group is None else zone_jobs(self.group)
        self.promises = Promises(
            self.servers,
            self.weather,
            self.slots,
            list(self.devices.keys),
            [job.id for job in self.jobs],
            SidePromises(self.servers, self.weather, self.simulation.struck),
        )
        self._spoil_devices()

    def _begin(self) -> None:
        database = self.servers.database
        database.clear()
        database.now = self.clock.now
        finish(database.store().templates.add(TEMPLATE))
        finish(self.servers.broker.setup(QUEUES))
        self.servers.kafka.publish(BusSettings().log_topic, [])  # workers look whether it is there
        for number in (1, 2):
            self._start(f"worker {number}")
        self._start("scheduler")
        for number in (1, 2):
            if self.weather.heard:
                self._start(f"feedback {number}")
        for name in ("group",) if self.group is not None else (job.id for job in self.jobs):
            self._start(f"client {name}")

    def _start(self, name: str) -> None:
        """A process; or a client, which posts its job until somebody answers."""
        if name.startswith("client"):
            self._act(name, self._post_of(name.removeprefix("client ")))
            return
        process = self.simulation.start(name)
        for component in getattr(processes, name.split(maxsplit=1)[0])(process, self.servers, self.settings):
            _ = process.run(component.start())

    def _post_of(self, name: str) -> "_Work":
        if (group := self.group) is not None:
            return partial(_post, lambda part: part.groups.start(group))
        job = next(job for job in self.jobs if job.id == name)
        return partial(_post, lambda part: part.flow.start(job))

    def _act(self, name: str, work: "_Work") -> None:
        """Somebody does something, by an API process of their own."""
        process = self.simulation.start(name)
        done = process.run(_tried(work, processes.user(process, self.servers, self.settings)))
        done.add_done_callback(lambda _: self.simulation.forget(process))

    def _choose(self) -> bool:
        """Whether some trouble comes now."""
        simulation = self.simulation
        if simulation.choices > MOST_CHOICES:
            raise Broken(Promise.NEVER, f"{MOST_CHOICES} choices")
        if self._over_at is not None:
            return False
        if simulation.choices >= self.weather.length:
            self._clear_up()
            return False
        process = self.chance.choice(simulation.processes) if simulation.processes else None
        if process and simulation.strikes("dies"):
            self._kill(process)
        elif process and simulation.strikes("sleeps"):
            simulation.put_to_sleep(process)
        elif process and process.subscriptions and simulation.strikes("cut"):
            self.chance.choice(process.subscriptions).leave("the connection was cut")
        elif self.servers.published and simulation.strikes("doubled"):
            finish(self.servers.broker.publish(*self.chance.choice(self.servers.published)))
        elif simulation.strikes("click"):
            self._click()
        elif simulation.strikes("join"):
            self._join()
        else:
            return False
        return True

    def _kill(self, process: Process) -> None:
        self.simulation.kill(process)
        if not process.name.startswith("user"):
            delay = self.chance.choice(_RESTART)
            self.simulation.loop.call_later(delay, self._start, process.name)

    def _click(self) -> None:
        job = self.chance.choice(self.jobs)
        verb = self.chance.choice(("pause", "pause", "resume", "resume", "stop"))
        whole = self.group is not None and self.chance.random() < _WHOLE_GROUPS
        about = "the group" if whole else job
        self.simulation.trace.add(self.simulation.loop.now, "", f"a user wants to {verb}", (about,))
        self._users += 1
        self._act(f"user {self._users}", partial(self._ask_group, verb) if whole else partial(_ask, verb, job))

    async def _ask_group(self, verb: str, part: JobsRoom) -> None:
        assert self.group is not None
        group = await part.store.groups.get(self.group.id)
        if group is not None:
            begun = self.promises.beside.begin_move(group.job_ids)
            await getattr(part.groups, verb)(group)
            self.promises.beside.end_move(verb, begun)

    def _draw_group(self) -> Group:
        """Two zones, the second of which may begin later. Each gets all devices: they are cut as they always are."""
        begins, zones = ns(BEGINNING), ("UTC+02:00", "UTC+01:00")
        later = self.chance.choice(_LATER_ZONES)
        starts = (ZoneJobStart(zones[0], begins), ZoneJobStart(zones[1], begins + later * 10**9))
        job = _job("", group_id=_GROUP_ID)
        return Group(id=_GROUP_ID, app_id=APP, job=job, zones=starts, created_at=begins)

    def _spoil_devices(self) -> None:
        for spoilt, share in (
            (self.devices.broken, self.weather.broken),
            (self.devices.poisoned, self.weather.poisoned),
        ):
            if share:
                spoilt.update(key for key in self.devices.keys if self.chance.random() < share)

    def _join(self) -> None:
        """Some devices come between those that are there, so that a batch grows."""
        place = self.chance.choice(self.devices.keys)
        for key in range(place - self.chance.randint(1, 5), place):
            if len(self.devices.keys) < _MOST_DEVICES:
                self.devices.add(key)

    def _clear_up(self) -> None:
        super()._clear_up()
        self.servers.kafka.show_all()

    def _check(self, step: Step | None, result: Any) -> None:
        self.servers.kafka.expire(self.simulation.loop.now)
        self.promises.check(step, result)

    def _rest(self) -> None:
        """Nobody can go on but with time: all is over, or has to be helped."""
        if self.promises.is_all_done and not self.simulation.late and not self.simulation.waiting:
            self._close()
        elif self._over_at is None:
            return
        elif self.simulation.loop.now > self._over_at + PATIENCE_SECONDS:
            raise Broken(Promise.NEVER, "; ".join(self.promises.unsettled()))
        else:
            for job in self.jobs:
                if self.promises.is_held(job.id):
                    self._act("user", partial(_ask, "resume", job))

    def _hear(self, body: bytes) -> None:
        self.promises.hear(json.loads(body))


TEMPLATE = Template(id="t", app_id=APP, name="hello", locale="en", body={"alert": "hi"})


_Work = Callable[[JobsRoom], Any]


def _job(name: str, group_id: str = "") -> Job:
    return Job(
        id=name,
        incarnation="1",
        app_id=APP,
        app_name=APP,
        service="apns",
        template_names=("hello",),
        created_by="u",
        group_id=group_id,
    )


async def _ask(verb: str, job: Job, part: JobsRoom) -> None:
    await getattr(part.flow, verb)(job.key)


async def _post(start: _Work, part: JobsRoom) -> None:
    """As a client does that has no answer."""
    while True:
        try:
            await start(part)
        except Unavailable:
            await asyncio.sleep(1)
        except Conflict:
            return
        else:
            return


async def _tried(work: _Work, part: JobsRoom) -> None:
    try:
        await work(part)
    except CarillonError:
        return
