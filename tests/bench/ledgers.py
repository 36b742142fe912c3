"""The ledger of a large job as its readers see it: statistics, look-up, export; and how soon a pause acts."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import aiohttp

from services.embedded.processes import free_port
from shared.jobs.rules.jobs import Job
from tests.bench.machine import memory
from tests.bench.messages import closed, post_office
from tests.bench.place import ADMIN, Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.providers.rules import Rule
from tests.services.worker.messages.post import Post

_RECIPIENTS, _RATE = 50_000, 2_500.0
_LOOKS = 50
_PAUSE_RATE, _QUIET_SECONDS = 1_000.0, 3.0


class Reader:
    """Reads by the API, as an admin."""

    def __init__(self, web: aiohttp.ClientSession, url: str, post: Post) -> None:
        self._web = web
        self._url = f"{url}/apps/{post.app.id}"

    async def get(self, path: str) -> Any:
        """What is answered as JSON."""
        async with self._web.get(self._url + path) as answer:
            told = await answer.json()
            if answer.status != 200:
                raise Wrong(f"{answer.status}: {told}")
            return told

    async def export(self, job: Job) -> int:
        """How many rows the export has."""
        lines = 0
        async with self._web.get(f"{self._url}/jobs/{job.id}/messages", headers={"accept": "text/csv"}) as answer:
            async for chunk in answer.content.iter_any():
                lines += chunk.count(b"\n")
        return lines - 1

    async def pause(self, job: Job) -> None:
        """Hold the job."""
        async with self._web.put(f"{self._url}/jobs/{job.id}/pause") as answer:
            if answer.status >= 300:
                raise Wrong(f"{answer.status}: {await answer.text()}")


async def measure(place: Place) -> list[Measured]:
    """One job is read once it is sent, and another one is paused."""
    runs = [await _measure_one(place) for _ in range(place.repeat)]
    goals = {
        "its statistics, median": ("ms", Target(100, at_most=True)),
        "look-up by id, median": ("ms", Target(20, at_most=True)),
        "look-up by recipient, median": ("ms", Target(20, at_most=True)),
        "a page of a hundred, median": ("ms", None),
        "export": ("rows/s", Target(15_000)),
        "peak memory of the API": ("MB", None),
        "calls behind the answer to a pause": ("calls", Target(500, at_most=True)),
    }
    figures = [Figure(name, [run[name] for run in runs], unit, target) for name, (unit, target) in goals.items()]
    note = (
        f"A job of {_RECIPIENTS:,} recipients that was sent, read over HTTP from an API process, {_LOOKS} times each. "
        f"The pause is of a job at {_PAUSE_RATE:,.0f}/s, whose provider answers after 200 ms."
    )
    return [Measured("the ledger of a job", figures, [note])]


async def _measure_one(place: Place) -> dict[str, float]:
    async with _open(place) as (reader, post, api_pid):
        job = await post.job(await post.credential(rate=_RATE, max_in_flight=1_000), _RECIPIENTS, batch_size=1_000)
        await closed(post, job, seconds=300)
        message = (await reader.get(f"/jobs/{job.id}/messages?limit=1"))[0]["id"]
        found = {
            "its statistics, median": await _time(lambda: reader.get(f"/jobs/{job.id}?exact=true")),
            "look-up by id, median": await _time(lambda: reader.get(f"/messages/{message}")),
            "look-up by recipient, median": await _time(lambda: reader.get("/messages?recipient=r777@example.com")),
            "a page of a hundred, median": await _time(lambda: reader.get(f"/jobs/{job.id}/messages?limit=100")),
        }
        began = time.perf_counter()
        if (rows := await reader.export(job)) != _RECIPIENTS:
            raise Wrong(f"the export has {rows:,} rows")
        found["export"] = rows / (time.perf_counter() - began)
        found["peak memory of the API"] = memory(api_pid).peak
        found["calls behind the answer to a pause"] = await _pause(reader, post)
        return found


async def _time(look: Callable[[], Awaitable[Any]]) -> float:
    """The median of its milliseconds."""
    took = []
    for _ in range(_LOOKS):
        began = time.perf_counter()
        await look()
        took.append((time.perf_counter() - began) * 1_000)
    return median(took)


async def _pause(reader: Reader, post: Post) -> float:
    """How many calls began behind the answer to a pause."""
    await post.fake.answer(always=Rule(status=202, delay_seconds=0.2))
    credential = await post.credential(rate=_PAUSE_RATE, max_in_flight=500)
    job = await post.job(credential, 20_000, batch_size=1_000)
    await post.has_calls(3_000, seconds=60)
    await reader.pause(job)
    answered = time.monotonic_ns()
    await asyncio.sleep(_QUIET_SECONDS)
    return sum(one.began_ns > answered for one in (await post.fake.tell()).arrived)


@asynccontextmanager
async def _open(place: Place) -> AsyncIterator[tuple[Reader, Post, int]]:
    port = free_port()
    async with post_office(place, Rule(status=202)) as (house, post):
        api = await house.start("api", CARILLON_API_PORT=str(port))
        for service in ("worker", "scheduler"):
            await house.start(service)
        async with aiohttp.ClientSession(headers={"x-forwarded-email": ADMIN}) as web:
            yield Reader(web, f"http://127.0.0.1:{port}", post), post, api.pid
