"""What the console costs where there is much: its routes and its pages, each asked a hundred times, and what their
queries examine; the page of a job with many batches; a bulk retry. And a process that has nothing to do but to tell of
itself."""

import asyncio
import os
from datetime import datetime
from statistics import quantiles
from time import perf_counter

from pymongo import monitoring

from services.embedded.processes import free_port
from services.wiring.api import build_api
from shared.console.rules.signs import ROLES
from shared.drivers.secrets import fresh_key
from shared.jobs.rules.jobs import Job
from tests.bench import audience, console_data, console_pages, console_routes
from tests.bench.asker import Asker, Away, open_api
from tests.bench.console_data import BATCHES, RUNNING
from tests.bench.console_viewers import measure_viewers
from tests.bench.explained import Commands, Examined, explain
from tests.bench.machine import Meter
from tests.bench.place import ADMIN, Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.schedules import NAMESPACE, Sizes, clock_house, database
from tests.bench.scraped import calls, scraped
from tests.e2e.house import House
from tests.services.api.client import Client
from tests.stack.places import say

_TIMES, _P99_MS, _KEYS = 100, 100, 5_000
_AWAY = "not answered in time"
_LOOKS, _LOOK_SECONDS, _FIRST_MS, _THEN_MS = 20, 1.1, 500, 20
_RETRIED, _RETRIED_A_SECOND, _RETRY_SECONDS = 20_000, 2_000, 300
_SETTLE_SECONDS, _IDLE_SECONDS, _WRITES, _CPU_PERCENT = 5.0, 30.0, 0.4, 2
_DEVICES = 10_000
_SETTINGS = {"CARILLON_PROVIDERS_SECRET_KEYS": fresh_key(), "CARILLON_PROVIDERS_SANDBOX_FILE": os.devnull}


async def measure(place: Place, sizes: Sizes) -> list[Measured]:
    """A thousandth of what `measure_large` has."""
    return await _measure(
        place, console_data.Amounts(*(max(each // 1_000, 100) for each in (sizes.pending, sizes.large)))
    )


async def measure_large(place: Place, sizes: Sizes) -> list[Measured]:
    """A million jobs, dead letters and audit records, and ten times the schedules."""
    return await _measure(place, console_data.Amounts(sizes.pending, sizes.large))


async def _measure(place: Place, amounts: console_data.Amounts) -> list[Measured]:
    commands = Commands()
    monitoring.register(commands)
    async with clock_house(place, **_SETTINGS) as house:
        await audience.fill(house, _DEVICES)
        await console_data.fill_all(house, amounts)
        jobs = await console_data.add_running(house)
        paths = console_routes.paths(await house.servers.time.now(), jobs[-1])
        say("measuring: the page of a large job")
        found = [await _measure_job_page(house, jobs[-1])]
        say("measuring: routes")
        found.append(await _measure_routes(house, commands, paths, amounts))
        say("measuring: pages")
        found += await console_pages.measure_pages(house, commands, jobs[-1], amounts)
        say("measuring: viewers")
        job_page = f"/jobs/{jobs[-1].app_id}/{jobs[-1].id}"
        watched = {"overview": "", "jobs": "/jobs", "a running job": job_page, "processes": "/processes"}
        found.append(await measure_viewers(house, commands, watched))
        # Last, because it leaves twenty times the dead letters and instants.
        say("measuring: bulk retry")
        found.append(await _measure_retry(house))
    async with clock_house(place) as house:
        say("measuring: processes that have nothing to do")
        found.append(await _measure_idle(house))
    return found


async def _measure_routes(
    house: House, commands: Commands, paths: dict[str, str], amounts: console_data.Amounts
) -> Measured:
    figures = []
    async with open_api(house) as asker:
        for what, path in paths.items():
            figures += await _time_route(asker, what, path)
    answered = [what for what in paths if not any(what in figure.what and _AWAY in figure.what for figure in figures)]
    figures += [await _examined(house, commands, what, paths[what]) for what in answered]
    note = (
        f"{amounts.things:,} jobs ({RUNNING} running), {amounts.schedules:,} schedules, {amounts.things:,} dead "
        f"letters and {amounts.things:,} audit records. Each route is asked {_TIMES} times over one connection to an "
        "API process; lists have 100 items a page. Keys are those of the dearest query of a request, as the database "
        "explains it. A route that the database does not answer in time is asked once, and not explained. Checked: "
        "each other answer is a 200."
    )
    return Measured("console: routes", figures, [note])


async def _time_route(asker: Asker, what: str, path: str) -> list[Figure]:
    target = Target(_P99_MS, at_most=True)
    try:
        percent = quantiles([await asker.get(path) for _ in range(_TIMES)], n=100, method="inclusive")
    except Away as error:
        return [Figure(f"{what}, {_AWAY}", [error.took], "ms", target)]
    return [
        Figure(f"{what}, median", [percent[49]], "ms"),
        Figure(f"{what}, 99th of 100", [percent[98]], "ms", target),
    ]


async def _examined(house: House, commands: Commands, what: str, path: str) -> Figure:
    """The same request in this process, whose queries are then explained."""
    client = Client(build_api(house.rooms), {"x-forwarded-email": ADMIN})
    commands.take()
    reply = await client.get(path)
    if reply.status != 200:
        raise Wrong(f"{path}: {reply.status} {reply.body[:300]!r}")
    told: Examined = await explain(database(house), commands.take())
    unknown = f", {told.unknown} of {told.queries} queries not explained" if told.unknown else ""
    return Figure(f"{what}, examined{unknown}", [told.keys], "keys", Target(_KEYS, at_most=True))


async def _measure_job_page(house: House, job: Job) -> Measured:
    path, then = console_routes.job_path(job), []
    async with open_api(house) as asker:
        await asker.get("/whoami")
        first = await asker.get(path)
        for look in range(_LOOKS):
            await console_data.settle(house, job, BATCHES - 100 + look)
            await asyncio.sleep(_LOOK_SECONDS)
            then.append(await asker.get(path))
        rate = [await asker.get(f"{path}/rate") for _ in range(_LOOKS)]
        shown = await asker.read(path)
    if (shown["completedBatches"], shown["totalBatches"]) != (BATCHES - 100 + _LOOKS, BATCHES):
        raise Wrong(f"{shown['completedBatches']} of {shown['totalBatches']} batches are shown as settled")
    figures = [
        Figure("first look", [first], "ms", Target(_FIRST_MS, at_most=True)),
        Figure("then, median", [quantiles(then, n=2)[0]], "ms", Target(_THEN_MS, at_most=True)),
        Figure("then, longest", [max(then)], "ms"),
        Figure("its rate, longest", [max(rate)], "ms", Target(_THEN_MS, at_most=True)),
    ]
    note = (
        f"GET of a running job with {BATCHES:,} batches by an API process that has just started, then one look in "
        f"{_LOOK_SECONDS:g} s, with a batch settled before each. Checked: the last look counts them all."
    )
    return Measured("console: page of a large job", figures, [note])


async def _measure_retry(house: House) -> Measured:
    await console_data.add_letters_to_retry(house, _RETRIED)
    worker = await house.start("worker")
    async with open_api(house) as asker:
        body = {"act": "dead-letter.retry", "filter": {"namespace": NAMESPACE}, "reason": "bench"}
        place = f"/bulk-actions/{(await asker.post('/bulk-actions', body))['id']}"
        began = perf_counter()
        while (action := await asker.read(place))["state"] in {"waiting", "running"}:
            if perf_counter() - began > _RETRY_SECONDS:
                return _retried(action["done"] / _RETRY_SECONDS, f"Given up after {_RETRY_SECONDS} s.")
            await asyncio.sleep(0.2)
    await worker.end()
    if (action["state"], action["done"]) != ("done", _RETRIED):
        raise Wrong(f"the bulk action should have retried {_RETRIED:,}: {action}")
    first, last = (datetime.fromisoformat(action[moment]) for moment in ("createdAt", "endedAt"))
    return _retried(_RETRIED / (last - first).total_seconds(), "Checked: all are retried.")


def _retried(rate: float, end: str) -> Measured:
    note = (
        f"{_RETRIED:,} dead letters of 1,000 schedules, each with a moment of its own, by one worker process; from the "
        f"request to the end. {end}"
    )
    return Measured("console: bulk retry", [Figure("retried", [rate], "letters/s", Target(_RETRIED_A_SECOND))], [note])


async def _measure_idle(house: House) -> Measured:
    ports = {name: free_port() for name in ROLES}
    started = {name: await house.start(name, CARILLON_HEALTH_PORT=str(port)) for name, port in ports.items()}
    await asyncio.sleep(_SETTLE_SECONDS)
    meter = Meter({name: process.pid for name, process in started.items()})
    before = {name: await scraped(port) for name, port in ports.items()}
    await asyncio.sleep(_IDLE_SECONDS)
    used = meter.used()
    after = {name: await scraped(port) for name, port in ports.items()}
    figures = []
    for name in ROLES:
        writes = sum(
            calls(after[name], f"store.{room}", verb) - calls(before[name], f"store.{room}", verb)
            for room, verb in (("processes", "tell"), ("minutes", "add"))
        )
        figures.append(
            Figure(f"{name}, writes of itself", [writes / _IDLE_SECONDS], "/s", Target(_WRITES, at_most=True))
        )
        percent = used[name] / _IDLE_SECONDS * 100
        figures.append(Figure(f"{name}, share of a core", [percent], "%", Target(_CPU_PERCENT, at_most=True)))
    note = (
        f"An empty deployment; {_IDLE_SECONDS:g} s, {_SETTLE_SECONDS:g} s after the start, by what each process counts "
        "itself."
    )
    return Measured("console: processes that have nothing to do", figures, [note])
