"""Jobs that send messages, whole: a file, workers as processes, a provider that is another process, and the ledger."""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.jobs.rules.jobs import Job
from shared.messages.rules.places import batch_size
from shared.runtime.configuration import load
from tests.bench.machine import Meter, memory
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.e2e.house import House
from tests.providers.fakes import fake_process
from tests.providers.rules import Rule
from tests.services.worker.messages.account import most_in_a_second, used_share
from tests.services.worker.messages.post import BUCKET, Post, add_app

_RECIPIENTS = 50_000
_QUICK_RATES = (2_500.0, 5_000.0)
_CPU_SECONDS = 3
_RATES = (10.0, 100.0, 500.0)
_SECONDS = 20
_USED = 97
_AT_ONCE = Rule(status=202)
_SAID: Mapping[str, Any] = {"text": "Hi {{name}}"}
_SLOWLY = Rule(status=202, delay_seconds=0.2)


async def measure(place: Place) -> list[Measured]:
    """How fast, and how much of a rate is used."""
    return [await _measure_speed(place), await _measure_use(place)]


async def _measure_speed(place: Place) -> Measured:
    figures = []
    for rate, workers in itertools.product(_QUICK_RATES, (1, 2)):
        runs = [await _send_all(place, rate, workers) for _ in range(place.repeat)]
        rates, peaks, most, cpu = ([run[which] for run in runs] for which in range(4))
        what = f"{rate:,.0f}/s, {_named(workers)}"
        figures.append(Figure(what, rates, "messages/s", Target(2_000)))
        figures.append(Figure(f"{what}: workers' CPU for 10,000", cpu, "s", Target(_CPU_SECONDS, at_most=True)))
        figures.append(Figure(f"{what}: peak memory", peaks, "MB", Target(200, at_most=True)))
        figures.append(_most_figure(what, most, rate))
    note = f"{_RECIPIENTS:,} recipients, by `http`, which answers at once; from the first call to the last."
    return Measured("messages", figures, [note])


async def _measure_use(place: Place) -> Measured:
    figures = []
    for rate, workers, rule in itertools.product(_RATES, (1, 3), (_AT_ONCE, _SLOWLY)):
        runs = [await _use(place, rate, workers, rule) for _ in range(place.repeat)]
        what = f"{rate:g}/s, {_named(workers)}, answers after {rule.delay_seconds * 1000:g} ms"
        figures.append(Figure(f"{what}: used", [used for used, _ in runs], "%", Target(_USED)))
        figures.append(_most_figure(what, [most for _, most in runs], rate))
    runs = [await _use(place, 100.0, 3, _SLOWLY, kill=True) for _ in range(place.repeat)]
    what = "100/s, one of 3 workers killed"
    figures.append(Figure(f"{what}: used", [used for used, _ in runs], "%", Target(90)))
    figures.append(_most_figure(what, [most for _, most in runs], 100.0))
    note = f"{_SECONDS} s of each rate, and a minute where a worker is killed. Each worker is a process."
    return Measured("use of a rate by jobs", figures, [note])


def _named(workers: int) -> str:
    return f"{workers} worker{'s' * (workers > 1)}"


def _most_figure(what: str, most: list[float], rate: float) -> Figure:
    return Figure(f"{what}: most in a second", most, "calls", Target(ceil(rate), at_most=True))


async def _send_all(place: Place, rate: float, workers: int) -> tuple[float, float, float, float]:
    async with post_office(place, _AT_ONCE) as (house, post):
        credential = await post.credential(rate=rate, max_in_flight=1_000)
        started = [await house.start("worker") for _ in range(workers)]
        meter = Meter({str(worker.pid): worker.pid for worker in started})
        await house.start("scheduler")
        job = await post.job(credential, _RECIPIENTS, batch_size=batch_size(rate))
        await closed(post, job, seconds=300)
        arrivals = await _arrivals(post)
        _check(arrivals, _RECIPIENTS)
        first, last = min(arrivals)[0], max(arrivals)[0]
        peak = max(memory(worker.pid).peak for worker in started)
        cpu = sum(meter.used().values()) / _RECIPIENTS * 10_000
        return (len(arrivals) - 1) / ((last - first) / 1e9), peak, most_in_a_second(arrivals), cpu


async def _use(place: Place, rate: float, workers: int, rule: Rule, *, kill: bool = False) -> tuple[float, float]:
    count = ceil(rate * (60 if kill else _SECONDS))
    async with post_office(place, rule) as (house, post):
        credential = await post.credential(rate=rate)
        started = [await house.start("worker") for _ in range(workers)]
        await house.start("scheduler")
        job = await post.job(credential, count, batch_size=min(batch_size(rate), max(count // 6, 20)))
        if kill:
            await post.has_calls(count // 3, seconds=60)
            started[0].send(signal.SIGKILL)
        await closed(post, job, seconds=count / rate * 2 + 60)
        arrivals = await _arrivals(post)
        if not kill:
            _check(arrivals, count)
        return 100 * used_share(arrivals, rate), most_in_a_second(arrivals)


@asynccontextmanager
async def post_office(
    place: Place, rule: Rule, *, fake_module: str = "http_fake", body: Mapping[str, Any] = _SAID
) -> AsyncIterator[tuple[House, Post]]:
    """Servers and a provider that answers so; processes are the caller's to start. A template says this."""
    with TemporaryDirectory() as folder:
        blobs = Path(folder) / "blobs"
        blobs.mkdir()
        settings = {
            "CARILLON_BLOBS_URL": blobs.as_uri(),
            "CARILLON_BLOBS_ALLOWED_BUCKETS": BUCKET,
            "CARILLON_PROVIDERS_SECRET_KEYS": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
            "CARILLON_PROVIDERS_ALLOWED_NETWORKS": "127.0.0.0/8",
            "CARILLON_WORKER_MAX_BATCH_FAILURE": "1",
        }
        async with place.house(**settings) as house, fake_process(fake_module) as fake:
            await fake.answer(always=rule)
            servers = Servers(load(house.environment), service="bench")
            yield house, Post(servers, Rooms(servers), fake, blobs, await add_app(servers, body))
            await servers.close()


async def closed(post: Post, job: Job, *, seconds: float) -> None:
    """Wait until it has nothing left to do."""
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        found = await post.store.jobs.view(job.key)
        if found is not None and not found.open:
            return
        await asyncio.sleep(0.2)
    raise Wrong(f"the job took over {seconds:g} s: {(await post.store.message_sums.count(job.key)).tally}")


async def _arrivals(post: Post) -> list[tuple[int, str]]:
    told = await post.fake.tell()
    return [(one.began_ns, one.headers["carillon-message"].partition("~")[0]) for one in told.arrived]


def _check(arrivals: list[tuple[int, str]], count: int) -> None:
    messages = {message for _, message in arrivals}
    if len(messages) < len(arrivals) or len(messages) != count:
        raise Wrong(f"{len(arrivals):,} calls for {len(messages):,} messages, {count:,} were planned")
