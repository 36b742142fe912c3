"""HTTP callbacks from outside: a web server that somebody else might run, and schedules that call it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from shared.clock.rules.callbacks import CALL_QUEUE, HttpCallback
from shared.clock.rules.outcomes import Outcome
from shared.clock.rules.schedules import Definition
from shared.clock.schedules import Accepted, Wanted
from tests.e2e.clocks import NAMESPACE
from tests.e2e.house import House, Process
from tests.waiting import SECONDS, until

PAYLOAD = '{"id": "42",  "né": 1.0}'
# What a deployment sets that calls its own network. A short tick makes retries quick.
OPEN = {"CARILLON_CALLBACKS_ALLOWED_NETWORKS": "127.0.0.0/8"}
QUICK = {"CARILLON_SCHEDULER_TICK_SECONDS": "0.2"}


class Called(msgspec.Struct, frozen=True):
    """One request as it came; `at` by the clock of this machine, on which the database runs too."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: datetime

    @property
    def message_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def key(self) -> str:
        return self.headers["carillon-key"]

    @property
    def due(self) -> datetime:
        return datetime.fromisoformat(self.headers["carillon-due"])

    @property
    def attempt(self) -> int:
        return int(self.headers["carillon-attempt"])


Answers = Callable[[Called], web.Response]


class Callee:
    """The server: it notes every call, and gives each the answer that the test chose."""

    def __init__(self, answers: Answers, thinks_for: float) -> None:
        self.all: list[Called] = []
        self.url = ""
        self._answers = answers
        self._thinks_for = thinks_for

    @property
    def times(self) -> Counter[str]:
        return Counter(each.message_id for each in self.all)

    async def got(self, count: int, seconds: float = SECONDS) -> None:
        """Wait for so many calls, repeats among them."""
        await until(lambda: len(self.all) >= count, f"{count} calls", seconds)

    async def handle(self, request: web.BaseRequest) -> web.Response:
        at = datetime.now(UTC)
        headers = {name.lower(): value for name, value in request.headers.items()}
        called = Called(request.method, request.raw_path, headers, await request.read(), at)
        self.all.append(called)
        await asyncio.sleep(self._thinks_for)
        return self._answers(called)


def status(number: int, **headers: str) -> web.Response:
    """An answer without a body; `_` in a header's name stands for `-`."""
    return web.Response(status=number, headers={name.replace("_", "-"): value for name, value in headers.items()})


def accepts(_: Called) -> web.Response:
    return status(HTTPStatus.NO_CONTENT)


@asynccontextmanager
async def callee(answers: Answers = accepts, *, thinks_for: float = 0.0) -> AsyncIterator[Callee]:
    """A callee on loopback that takes so many seconds for each answer."""
    server = Callee(answers, thinks_for)
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hooks?a=1"
    try:
        yield server
    finally:
        await runner.cleanup()


async def clock_and_worker(house: House) -> tuple[Process, Process]:
    return await house.start("scheduler", **QUICK), await house.start("worker", **OPEN)


async def calls(house: House, key: str, url: str, *seconds: float, **fields: Any) -> Accepted:
    """A schedule that calls a URL at instants from now by the database's clock."""
    now = await house.servers.time.now()
    instants = tuple(sorted(now + timedelta(seconds=each) for each in seconds))
    target = {name: fields.pop(name) for name in ("headers", "method", "secret") if name in fields}
    definition = Definition(callback=HttpCallback(url=url, payload=PAYLOAD, **target), instants=instants, **fields)
    [answer] = await house.schedules.accept([Wanted(NAMESPACE, key, definition)])
    assert isinstance(answer, Accepted), answer
    return answer


async def settled(house: House, accepted: Accepted) -> list[Outcome]:
    """Wait until nothing of a schedule is left to do: what became of each attempt, by instant and attempt."""
    owner = accepted.schedule.owner

    async def is_settled() -> bool:
        return not await house.servers.store.occurrences.find_upcoming(owner, 1)

    await until(is_settled, "every occurrence to be settled")
    outcomes = await house.servers.store.outcomes.latest(owner, 100)
    return sorted(outcomes, key=lambda each: (each.due, each.attempt))


async def waiting(house: House, count: int) -> None:
    """Wait until so many calls wait for a worker."""

    async def is_queued() -> bool:
        return await house.servers.broker.depth(CALL_QUEUE) >= count

    await until(is_queued, f"{count} calls in their queue")
