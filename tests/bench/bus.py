"""The bus, in processes as they are deployed: publishing, fan-out, deliveries, and the way from end to end."""

import asyncio
import json
import os
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from secrets import token_hex
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import aiohttp
from msgspec import Raw, Struct

from services.embedded.processes import free_port
from shared.bus.rules.events import EventDraft
from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.rules.wake_ups import Wake
from shared.bus.waking import Waker
from tests.bench import accept_beside, load
from tests.bench.load import Order
from tests.bench.machine import Meter
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.e2e.house import House
from tests.receivers import receiver
from tests.services.worker.bus.delivering import LEASE, Delivering
from tests.waiting import until

_ROOT_KEY = "root-of-the-bus-of-the-bench"
_NAMESPACE, TOPIC = "token:bench", "things"
_EVENT = "x" * 198  # 200 bytes as JSON
_CHUNK = 100
_SINGLES, _WARM_UP_SINGLES, _CONNECTIONS = 6_000, 12_000, 64
_BULK, _BULKS, _BULKS_AT_ONCE = 500, 60, 8
_FANNED_OUT, _SUBSCRIPTIONS = 20_000, 10
RATE, _SECONDS, _WARM_UP = 100, 10, 50
# Kafka gives the partitions to another fan-out after 10 s; a worker's lease lasts 32 s.
_CRASHES = (("feedback-bus", "fanout.before_flush@20", 11), ("worker", "deliver.before_call@20", 33))


class _Shape(Struct, frozen=True):
    """So many queues, each with so many deliveries of so many events."""

    queues: int
    deliveries: int
    events: int
    goal: float

    def __str__(self) -> str:
        return f"{self.queues:,} subscriptions, {self.deliveries:,} deliveries each of {self.events}"


class _Singles(Struct, frozen=True):
    """Requests of one event each: how many a second, the 99th latency of 100 in ms, CPU by process in us a request."""

    rate: float
    slowest: float
    cpu: dict[str, float]


class _Apis(Struct, frozen=True):
    """Two API processes, a token that their clients show, and its topic. `pids` are theirs and the servers'."""

    ports: list[int]
    pids: dict[str, int]
    token: str
    topic: str

    async def publish_singly(self, count: int = _SINGLES) -> _Singles:
        """Send so many, as fast as they are answered."""
        meter = Meter(self.pids)
        answered = await load.in_a_process(self._order(count))
        used = meter.used() | {"load": answered.cpu_seconds}
        if answered.statuses != {"200": count}:
            raise Wrong(f"answers by status: {answered.statuses}")
        used["API processes"] = sum(seconds for name, seconds in used.items() if name.startswith("api"))
        slowest = quantiles(answered.latencies, n=100, method="inclusive")[98]
        return _Singles(
            count / answered.seconds, slowest, {name: seconds / count * 1e6 for name, seconds in used.items()}
        )

    def _order(self, count: int) -> Order:
        headers = {
            "Authorization": f"Basic {b64encode(f'{self.token}:x'.encode()).decode()}",
            "Content-Type": "application/json",
        }
        bodies = [json.dumps({"type": "update", "url": f"https://example.com/{number}"}) for number in range(count)]
        return Order(self.ports, f"/topics/{self.topic}", headers, bodies, 0, _CONNECTIONS)


_SHAPES = (_Shape(10, 300, 10, 1_000), _Shape(1_000, 1, 1, 400))


async def measure(place: Place) -> list[Measured]:
    """All of it, each in a house of its own."""
    return [
        await _measure_publishing(place),
        await _measure_fan_out(place),
        *[await _measure_deliveries(place, shape) for shape in _SHAPES],
        await _measure_latency(place),
    ]


async def _measure_publishing(place: Place) -> Measured:
    singles, unlogged, bulks = list[_Singles](), list[_Singles](), list[float]()
    async with scene(place) as (house, _):
        apis = await _start_apis(house, place, f"{TOPIC}_logged")
        quiet = await _start_apis(house, place, f"{TOPIC}_unlogged", CARILLON_LOGS_LEVEL="warning")
        for _ in range(place.repeat):
            singles.append(await apis.publish_singly())
            unlogged.append(await quiet.publish_singly())
            bulks.append(await publish_in_bulk(house))
    names = ("API processes", "kafka", "mongo", "load")
    figures = [
        Figure("one event a request", [run.rate for run in singles], "events/s", Target(3_000)),
        Figure("one event a request, 99th of 100", [run.slowest for run in singles], "ms", Target(50, at_most=True)),
        *(Figure(f"CPU of {name}", [run.cpu[name] for run in singles], "us a request") for name in names),
        Figure("one event a request, none logged", [run.rate for run in unlogged], "events/s"),
        Figure("CPU of API processes, none logged", [run.cpu["API processes"] for run in unlogged], "us a request"),
        Figure(f"{_BULK} events at a time, without HTTP", bulks, "events/s", Target(50_000)),
    ]
    note = (
        f"{_SINGLES:,} posts to /topics with {_CONNECTIONS} always in hand over two API processes, all answered 200, "
        f"after {_WARM_UP_SINGLES:,} that are not counted: Kafka has compiled itself by then. Without a log line a "
        f"request, by two more processes. Then {_BULKS} times {_BULK} events, {_BULKS_AT_ONCE} at a time, by the "
        "publisher inside the benchmark."
    )
    return Measured("bus: publishing", figures, [note, load_average()])


async def _measure_fan_out(place: Place) -> Measured:
    rates = []
    for _ in range(place.repeat):
        async with scene(place) as (house, bus):
            for number in range(_SUBSCRIPTIONS):
                await bus.subscribe(f"k{number}", topics=(TOPIC,), timeout_ms=3_600_000, max_events=10_000)
            for first in range(0, _FANNED_OUT, _BULK):
                await _publish(house, range(first, first + _BULK))
            await house.spawn("feedback-bus")
            rates.append(await _watch_chunks(bus, _FANNED_OUT * _SUBSCRIPTIONS))
    figures = [Figure("one process, until stored", rates, "pairs/s", Target(50_000))]
    note = f"{_FANNED_OUT:,} events in the log, {_SUBSCRIPTIONS} subscriptions of them; from the first pair seen."
    return Measured("bus: fan-out", figures, [note, load_average()])


async def _measure_deliveries(place: Place, shape: _Shape) -> Measured:
    rates, spent = [], list[dict[str, float]]()
    for _ in range(place.repeat):
        async with scene(place) as (house, bus):
            subscriptions = await _fill_queues(bus, shape)
            worker = await house.start("worker")
            await house.start("scheduler")
            meter = Meter(place.pids | {"worker": worker.pid})
            now = await bus.time.now()
            await bus.waker.wake([Wake(one.queue, now, shape.deliveries * shape.events) for one in subscriptions])
            await _wait_for_arrivals(bus, shape.queues * shape.deliveries)
            spent.append(meter.used())
            rates.append(_check_deliveries(bus, shape))
    cpu = [Figure(f"CPU of {name}", [run[name] for run in spent], "s") for name in ("worker", "mongo", "rabbitmq")]
    note = "One worker, and a receiver that answers at once; from the first arrival to the last. Each came once."
    return Measured(
        f"bus: {shape}", [Figure("deliveries", rates, "/s", Target(shape.goal)), *cpu], [note, load_average()]
    )


async def _measure_latency(place: Place) -> Measured:
    medians, slowest = [], []
    for _ in range(place.repeat):
        async with scene(place) as (house, bus):
            await bus.subscribe("k0", topics=(TOPIC,), timeout_ms=0)
            for service in ("feedback-bus", "worker", "scheduler"):
                await house.start(service)
            await publish_at_rate(house, _WARM_UP)
            await until(lambda: len(latencies(bus)) >= _WARM_UP, "the first events", 60)
            await publish_at_rate(house, RATE * _SECONDS)
            await until(lambda: len(latencies(bus)) >= RATE * _SECONDS + _WARM_UP, "all events", 60)
            found = latencies(bus)[_WARM_UP:]
            medians.append(median(found))
            slowest.append(quantiles(found, n=100, method="inclusive")[98])
    figures = [
        Figure("median", medians, "ms", Target(100, at_most=True)),
        Figure("99th of 100", slowest, "ms", Target(500, at_most=True)),
    ]
    note = f"{RATE} events a second for {_SECONDS} s, `timeout` 0: from the call that publishes to the arrival."
    return Measured("bus: publish to callback", figures, [note, load_average()])


async def measure_crashes(place: Place) -> list[Measured]:
    """How long events wait when one of two processes dies."""
    figures = []
    for service, fault, goal in _CRASHES:
        seconds = [await _crash(place, service, fault) for _ in range(place.repeat)]
        figures.append(Figure(f"after `kill -9` of a {service}", seconds, "s", Target(goal, at_most=True)))
    note = "Two processes of the kind run, one is killed with events in hand: from its death until all have arrived."
    return [Measured("bus: after a crash", figures, [note, load_average()])]


async def _crash(place: Place, service: str, fault: str) -> float:
    """Seconds from the death of a process of this service until its events have arrived."""
    async with scene(place) as (house, bus):
        await bus.subscribe("k0", topics=(TOPIC,), timeout_ms=0)
        doomed = await house.start(service, fault=f"{fault}=kill")
        for other in ("feedback-bus", "worker", "scheduler"):
            await house.start(other)
        publishing = asyncio.create_task(publish_at_rate(house, RATE * _SECONDS))
        await doomed.gone()
        died = time.perf_counter()
        await publishing
        await until(lambda: len(_published_at(bus)) >= RATE * _SECONDS, "all events", 120)
        return time.perf_counter() - died


def _published_at(bus: Delivering) -> set[int]:
    """When each event that has arrived was published, in ns: a repeat does not count."""
    return {event["data"]["at"] for arrival in bus.receiver.arrivals() for event in arrival.events}  # type: ignore[index]


@asynccontextmanager
async def scene(place: Place) -> AsyncIterator[tuple[House, Delivering]]:
    settings = {
        "CARILLON_API_REQUESTS_PER_SECOND": "10000",
        "CARILLON_BUS_ROOT_KEY": _ROOT_KEY,
        "CARILLON_BUS_ALLOW_HTTP": "true",
        "CARILLON_BUS_LOG_TOPIC": f"bus-{token_hex(4)}",
        "CARILLON_BUS_GROUP": f"fanout-{token_hex(4)}",
        "CARILLON_CALLBACKS_ALLOWED_NETWORKS": "127.0.0.0/8",
    }
    with TemporaryDirectory() as folder:
        async with place.house(**settings) as house, receiver(Path(folder) / "arrivals") as at:
            given = house.servers
            waker = Waker(given.store, given.broker, given.time, handed_for=LEASE)
            yield house, Delivering(given.store, given.time, waker, given.key_ring, at)


async def _start_apis(house: House, place: Place, topic: str, **settings: str) -> _Apis:
    ports = [free_port(), free_port()]
    apis = [await house.spawn("api", CARILLON_API_PORT=str(port), **settings) for port in ports]
    for port in ports:  # one that logs little does not say that it is ready
        await until(partial(accept_beside._listens, port), "an API process to listen")
    pids = {f"api {number}": api.pid for number, api in enumerate(apis)} | place.pids
    started = _Apis(ports, pids, await _make_token(ports[0]), topic)
    await started.publish_singly(_WARM_UP_SINGLES)
    return started


async def _make_token(port: int) -> str:
    url, root = f"http://127.0.0.1:{port}/api_tokens", aiohttp.BasicAuth(_ROOT_KEY, "x")
    async with aiohttp.ClientSession() as session, session.post(url, json={"name": "bench"}, auth=root) as answer:
        if answer.status != 201:
            raise Wrong(f"a token is answered {answer.status}")
        token: str = (await answer.json())["token"]
        return token


async def publish_in_bulk(house: House, count: int = _BULK * _BULKS) -> float:
    """Events a second."""
    places = asyncio.Semaphore(_BULKS_AT_ONCE)

    async def publish_one(first: int) -> None:
        async with places:
            await _publish(house, range(first, first + _BULK))

    began = time.perf_counter()
    await asyncio.gather(*(publish_one(first) for first in range(0, count, _BULK)))
    return count / (time.perf_counter() - began)


async def publish_at_rate(house: House, count: int) -> None:
    began, loop = time.perf_counter(), asyncio.get_running_loop()
    under_way = []
    for number in range(count):
        await asyncio.sleep(max(began + number / RATE - time.perf_counter(), 0))
        under_way.append(loop.create_task(_publish(house, range(number, number + 1))))
    await asyncio.gather(*under_way)


async def _publish(house: House, numbers: range) -> None:
    data = Raw(b'{"at":%d}' % time.time_ns())
    drafts = [EventDraft(type="update", url=f"https://example.com/{number}", data=data) for number in numbers]
    await house.rooms.bus.publisher.publish(TOPIC, _NAMESPACE, drafts)


async def _watch_chunks(bus: Delivering, count: int) -> float:
    """Pairs a second."""
    first, began = 0, 0.0
    pipeline = [{"$group": {"_id": None, "n": {"$sum": "$n"}}}]
    deadline = time.perf_counter() + 120
    while time.perf_counter() < deadline:
        found = await (await bus.store._database["bus_chunks"].aggregate(pipeline)).to_list()
        stored, now = (found[0]["n"] if found else 0), time.perf_counter()
        if stored and not first:
            first, began = stored, now
        if stored >= count:
            if stored > count or first == stored:
                raise Wrong(f"{stored:,} pairs are stored, {first:,} of them at the first look, of {count:,}")
            return float((stored - first) / (now - began))
        await asyncio.sleep(0.02)
    raise Wrong(f"fewer than {count:,} pairs are stored after two minutes")


async def _fill_queues(bus: Delivering, shape: _Shape) -> Sequence[EventSubscription]:
    subscriptions = [
        await bus.subscribe(f"k{number}", max_events=shape.events, timeout_ms=0) for number in range(shape.queues)
    ]
    for one in subscriptions:
        left = shape.deliveries * shape.events
        while left > 0:
            await bus.publish(one, *[_EVENT] * min(left, _CHUNK), wake=False)
            left -= _CHUNK
    return subscriptions


async def _wait_for_arrivals(bus: Delivering, count: int) -> None:
    await until(lambda: len(bus.receiver.arrivals()) >= count, f"{count:,} deliveries", 120)


def _check_deliveries(bus: Delivering, shape: _Shape) -> float:
    """Deliveries a second."""
    arrivals, count = bus.receiver.arrivals(), shape.queues * shape.deliveries
    if len({arrival.id for arrival in arrivals}) != len(arrivals) or len(arrivals) != count:
        raise Wrong(f"{len(arrivals):,} arrivals, {count:,} deliveries")
    if any(len(arrival.events) != shape.events for arrival in arrivals):
        raise Wrong("a delivery has fewer events than it may")
    moments = [arrival.at for arrival in arrivals]
    return (count - 1) / ((max(moments) - min(moments)) / 1e9)


def latencies(bus: Delivering, path: str | None = None) -> list[float]:
    """In milliseconds, of each event; or of those at this path of the receiver."""
    return [
        (arrival.at - event["data"]["at"]) / 1e6  # type: ignore[index]
        for arrival in bus.receiver.arrivals(path)
        for event in arrival.events
    ]


def load_average() -> str:
    return f"Load average at the end {os.getloadavg()[0]:.1f}: all servers, and others' work, share the two cores."
