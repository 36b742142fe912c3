"""Single messages: how fast they are accepted, and how long until the provider has one, alone and beside a job."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import median, quantiles
from typing import Any

import aiohttp

from services.embedded.processes import free_port
from shared.messages.rules.credentials import Credential
from tests.bench.messages import post_office
from tests.bench.place import ADMIN, Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.providers.rules import Rule
from tests.services.worker.messages.post import Post

_ACCEPTED_RATE, _ACCEPTED_SECONDS = 300, 10
_ALONE, _BESIDE = 40, 40
_JOB_RATE = 100.0


class Sender:
    """Sends by the API, with a token whose rate is no limit."""

    def __init__(self, web: aiohttp.ClientSession, url: str, post: Post) -> None:
        self._web = web
        self._url = url
        self._post = post

    async def send(self, credential: Credential) -> tuple[str, int, float]:
        """The message's id, when its request began (monotonic, ns), and how many milliseconds that took."""
        began = time.monotonic_ns()
        body = {"credential": credential.name, "to": "ana@example.com", "body": {"text": "Hi"}}
        async with self._web.post(f"{self._url}/apps/{self._post.app.id}/messages", json=body) as answer:
            told = await answer.json()
            if answer.status != 201:
                raise Wrong(f"{answer.status}: {told}")
        return told["id"], began, (time.monotonic_ns() - began) / 1e6

    async def arrivals(self) -> dict[str, int]:
        """When each message came to the provider (monotonic, ns)."""
        told = await self._post.fake.tell()
        return {one.headers["carillon-message"].partition("~")[0]: one.began_ns for one in told.arrived}


async def measure(place: Place) -> list[Measured]:
    """One process of each kind runs."""
    accepted, alone, beside = [], [], []
    for _ in range(place.repeat):
        async with _open(place) as (sender, post):
            credential = await post.credential(rate=500)
            await _latencies(sender, credential, 3, pause=0.2)
            alone.append(await _latencies(sender, credential, _ALONE, pause=0.3))
            accepted.append(await _accept(sender, await post.credential(rate=1_000)))
            slow = await post.credential(rate=_JOB_RATE)
            await post.job(slow, 6_000, batch_size=1_000)
            await asyncio.sleep(3)
            beside.append(await _latencies(sender, slow, _BESIDE, pause=0.4))
    figures = [
        Figure("accepted", [rate for rate, _ in accepted], "messages/s"),
        Figure("accepted, 99th of 100", [p99 for _, p99 in accepted], "ms", Target(100, at_most=True)),
        Figure("idle to the provider, median", [median(run) for run in alone], "ms", Target(150, at_most=True)),
        Figure("idle to the provider, longest", [max(run) for run in alone], "ms"),
        Figure("beside a job, median", [median(run) for run in beside], "ms"),
        Figure("beside a job, 99th of 100", [_p99(run) for run in beside], "ms", Target(2_500, at_most=True)),
    ]
    note = (
        f"Accepted: {_ACCEPTED_RATE} requests a second for {_ACCEPTED_SECONDS} s, each begun at its instant, while a "
        f"worker sends. To the provider: from the request's beginning to its first byte there, {_ALONE} one by one. "
        f"Beside a job that has the whole rate of {_JOB_RATE:g}/s: {_BESIDE}."
    )
    return [Measured("single messages", figures, [note])]


async def _latencies(sender: Sender, credential: Credential, count: int, *, pause: float) -> list[float]:
    """Milliseconds from each request to the provider."""
    sent = []
    for _ in range(count):
        sent.append(await sender.send(credential))
        await asyncio.sleep(pause)
    await asyncio.sleep(4)
    arrived = await sender.arrivals()
    return [(arrived[message_id] - began) / 1e6 for message_id, began, _ in sent]


async def _accept(sender: Sender, credential: Credential) -> tuple[float, float]:
    """How many a second were accepted, and the 99th of 100 of their milliseconds."""
    count, first = _ACCEPTED_RATE * _ACCEPTED_SECONDS, time.monotonic()

    async def send(number: int) -> float:
        due = first + number / _ACCEPTED_RATE
        await asyncio.sleep(max(due - time.monotonic(), 0))
        await sender.send(credential)
        return (time.monotonic() - due) * 1_000

    took = await asyncio.gather(*(send(number) for number in range(count)))
    return count / (time.monotonic() - first), _p99(took)


def _p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[98]


@asynccontextmanager
async def _open(place: Place) -> AsyncIterator[tuple[Sender, Post]]:
    port = free_port()
    url, admin = f"http://127.0.0.1:{port}", {"x-forwarded-email": ADMIN}
    async with post_office(place, Rule(status=202)) as (house, post):
        await house.start("api", CARILLON_API_PORT=str(port))
        for service in ("worker", "scheduler"):
            await house.start(service)
        async with aiohttp.ClientSession() as web:
            wanted: dict[str, Any] = {"name": "bench", "isAdmin": True, "messagesPerSecond": 10_000}
            async with web.post(f"{url}/tokens", json=wanted, headers=admin) as answer:
                token = (await answer.json())["token"]
        connector = aiohttp.TCPConnector(limit=64)
        async with aiohttp.ClientSession(connector=connector, headers={"authorization": f"Bearer {token}"}) as web:
            yield Sender(web, url, post), post
