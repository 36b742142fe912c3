"""How many schedules two API processes take in: one a request, at a rate and as fast as they go; and in bulk."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import count, product
from statistics import quantiles

from msgspec import Struct

from services.embedded.processes import free_port
from tests.bench import load
from tests.bench.load import Load, Order
from tests.bench.machine import Meter
from tests.bench.place import ADMIN, Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.schedules import PAYLOAD, QUEUE, Sizes, clock_house, database
from tests.e2e.house import House

_RATE, _SECONDS, _P99 = 2_000, 20, 50
_BULK_RATE = 10_000
_CONNECTIONS, _CLOSED_CONNECTIONS = 64, 32
_WARM_UP = 500
_TIMESTAMPS = 10
_JSON, _NDJSON = "application/json", "application/x-ndjson"
_callers = count()


class Accepting(Struct, frozen=True):
    """One load, and the CPU seconds of everything meanwhile."""

    load: Load
    cpu_seconds: dict[str, float]

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.load.latencies) / self.load.seconds


async def measure(place: Place, sizes: Sizes) -> list[Measured]:
    """One timestamp a request."""
    at_rate, at_most = [], []
    async with _scene(place) as scene:
        for _ in range(place.repeat):
            at_rate.append(await scene.single(_RATE * _SECONDS, _RATE, _CONNECTIONS))
            at_most.append(await scene.single(sizes.bulk, 0, _CLOSED_CONNECTIONS))
    figures = [
        Figure("answered, at the given rate", [run.rate for run in at_rate], "requests/s", Target(_RATE * 0.99)),
        *(_percentile(at_rate, n) for n in (50, 95)),
        _percentile(at_rate, 99, Target(_P99, at_most=True)),
        *_cpu(at_rate),
        Figure(f"answered, {_CLOSED_CONNECTIONS} always in hand", [run.rate for run in at_most], "requests/s"),
    ]
    note = (
        f"POST /schedules with one timestamp and a rabbitmq callback, {_RATE:,} a second for {_SECONDS} s from one "
        f"process with {_CONNECTIONS} open connections to two API processes; each counts from the moment at which it "
        "was to go out. Checked: all are answered 201, and schedules and occurrences are all there."
    )
    return [Measured("accept", figures, [note])]


def _percentile(runs: Sequence[Accepting], n: int, target: Target | None = None) -> Figure:
    values = [quantiles(run.load.latencies, n=100, method="inclusive")[n - 1] for run in runs]
    return Figure(f"{n}th of 100" if n != 50 else "median", values, "ms", target)


def _cpu(runs: Sequence[Accepting]) -> list[Figure]:
    names = [name for name in runs[0].cpu_seconds if name.startswith(("api", "mongo"))]
    spent = [Figure(f"CPU of {name}", [run.cpu_seconds[name] for run in runs], "s") for name in names]
    return [*spent, Figure("CPU of the load itself", [run.load.cpu_seconds for run in runs], "s")]


async def measure_bulk(place: Place, sizes: Sizes) -> list[Measured]:
    """Thousands of items a request."""
    figures, items = [], sizes.bulk
    ways = product((1, _TIMESTAMPS), (("an array", _JSON), ("NDJSON", _NDJSON)), (1, 2))
    async with _scene(place) as scene:
        for timestamps, (kind, content_type), at_once in ways:
            runs = [await scene.bulk(items, timestamps, content_type, at_once) for _ in range(place.repeat)]
            what = f"{timestamps} timestamp{'s' * (timestamps > 1)} an item, {kind}, {at_once} at once"
            rates = [items * timestamps * at_once / run.load.seconds for run in runs]
            figures.append(Figure(what, rates, "entries/s", Target(_BULK_RATE)))
    note = (
        f"POST /schedules/bulk with {items:,} items; two at once go to one process each. An entry is a timestamp. "
        "Checked: every item is answered 201, and schedules and occurrences are all there."
    )
    return [Measured("bulk", figures, [note])]


@asynccontextmanager
async def _scene(place: Place) -> AsyncIterator["Scene"]:
    """Two API processes that have answered something."""
    async with clock_house(place) as house:
        ports = [free_port(), free_port()]
        # One caller sends all of it.
        limits = {"CARILLON_API_REQUESTS_PER_SECOND": "10000", "CARILLON_API_PENDING_SCHEDULES": "100000000"}
        apis = [await house.start("api", CARILLON_API_PORT=str(port), **limits) for port in ports]
        pids = {f"api {number}": api.pid for number, api in enumerate(apis, start=1)}
        scene = Scene(house, ports, await asyncio.to_thread(fresh_token, ports[0]), pids | place.pids)
        await scene.single(_WARM_UP, 0, _CLOSED_CONNECTIONS)
        yield scene


def fresh_token(port: int) -> str:
    """The secret of a fresh token: services, and no person, send thousands of schedules a second."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"x-forwarded-email": ADMIN, "content-type": _JSON}
    connection.request("POST", "/tokens", json.dumps({"name": "accept"}), headers)
    answer = connection.getresponse()
    made = json.loads(answer.read())
    connection.close()
    if answer.status != HTTPStatus.CREATED:
        raise Wrong(f"POST /tokens: {answer.status} {made}")
    return str(made["token"])


class Scene:
    """The API processes, and how many schedules and occurrences they must have stored."""

    def __init__(self, house: House, ports: list[int], secret: str, pids: dict[str, int]) -> None:
        self._house = house
        self._ports = ports
        self._secret = secret
        self._pids = pids
        self._schedules = 0
        self._occurrences = 0

    async def single(self, requests: int, rate: float, connections: int) -> Accepting:
        """Requests of one timestamp."""
        bodies = [json.dumps(item) for item in draw_items(requests, 1)]
        accepting = await self._loaded("/schedules", _JSON, bodies, rate, connections)
        if accepting.load.statuses != {"201": requests}:
            raise Wrong(f"answers by status: {accepting.load.statuses}\n{self._complaints()}")
        await self._check(requests, requests)
        return accepting

    async def bulk(self, items: int, timestamps: int, content_type: str, at_once: int) -> Accepting:
        """Requests of many items, one to each process."""
        bodies = [_joined(draw_items(items, timestamps), lines=content_type == _NDJSON) for _ in range(at_once)]
        accepting = await self._loaded("/schedules/bulk", content_type, bodies, 0, at_once)
        if accepting.load.statuses not in ({"200": at_once}, {"201": at_once}):
            raise Wrong(f"answers by status: {accepting.load.statuses}\n{self._complaints()}")
        await self._check(items * at_once, items * timestamps * at_once)
        return accepting

    async def _loaded(
        self, path: str, content_type: str, bodies: list[str], rate: float, connections: int
    ) -> Accepting:
        headers = {"authorization": f"Bearer {self._secret}", "content-type": content_type}
        order = Order(self._ports, path, headers, bodies, rate, connections)
        meter = Meter(self._pids)
        answered = await load.in_a_process(order)
        return Accepting(answered, meter.used())

    def _complaints(self) -> str:
        lines = self._house.logs().splitlines()
        return "\n".join(line for line in lines if "level=info" not in line)

    async def _check(self, schedules: int, occurrences: int) -> None:
        """Raise `Wrong` unless so many more are in the store."""
        self._schedules += schedules
        self._occurrences += occurrences
        stored = await database(self._house)["schedules"].count_documents({})
        waiting = await database(self._house)["occurrences"].count_documents({})
        if (stored, waiting) != (self._schedules, self._occurrences):
            raise Wrong(
                f"{stored:,} of {self._schedules:,} schedules and {waiting:,} of {self._occurrences:,} occurrences"
            )


def draw_items(number: int, timestamps: int) -> list[dict[str, object]]:
    """Bodies under fresh keys, due in ten years."""
    caller, first = next(_callers), datetime.now(UTC).replace(microsecond=0) + timedelta(days=3_650)
    instants = [(first + timedelta(minutes=n)).isoformat() for n in range(timestamps)]
    callback = {"type": "rabbitmq", "data": {"queue": QUEUE, "payload": json.loads(PAYLOAD)}}
    return [{"key": f"accept-{caller}-{n}", "schedules": instants, "callback": callback} for n in range(number)]


def _joined(items: Sequence[dict[str, object]], *, lines: bool) -> str:
    return "\n".join(json.dumps(item) for item in items) if lines else json.dumps(items)
