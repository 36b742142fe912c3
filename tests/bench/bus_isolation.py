"""The bus beside those who trouble it: what a dead receiver, subscriptions with nothing to do, and receivers that hang
cost others, and the machine."""

import asyncio
from collections.abc import Awaitable, Callable
from statistics import quantiles

from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.rules.wake_ups import Wake
from tests.bench.bus import RATE, TOPIC, latencies, load_average, publish_at_rate, scene
from tests.bench.machine import Meter
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target
from tests.bus.store.made_subscriptions import add
from tests.e2e.house import House
from tests.receivers import HANG
from tests.services.worker.bus.delivering import Delivering
from tests.waiting import until

_SECONDS, _WARM_UP, _IDLE_SECONDS = 10, 100, 20.0
_BATCHES, _AT_ONCE = 10_000, 100
_IDLE, _NAMESPACES = 10_000, 10
_HANGING = 50

Trouble = Callable[[Delivering], Awaitable[None]]


async def measure(place: Place) -> list[Measured]:
    """Each trouble in a house of its own, and a house without any."""
    calm = await _run(place, _trouble_nobody)
    dead = await _run(place, _add_dead)
    idle = await _run(place, _add_idle)
    hanging = await _run(place, _add_hanging)
    figures = [
        Figure("nothing else: 99th of 100", [calm.slowest], "ms"),
        Figure("nothing else: all processes of the bus", [calm.cpu], "% of a core"),
        *_compare(f"a dead receiver with {_BATCHES:,} batches", dead, calm, 1.1),
        *_compare(f"{_IDLE:,} idle subscriptions", idle, calm, 1.1),
        _ratio(f"{_HANGING} receivers that hang", hanging, calm, 2.0),
    ]
    note = (
        f"`timeout` 0, {RATE} events a second for {_SECONDS} s to a receiver that answers at once, from the call that "
        f"publishes to the arrival; CPU of fan-out, worker and scheduler over {_IDLE_SECONDS:g} s without events."
    )
    return [Measured("bus: isolation", figures, [note, load_average()])]


class _Run:
    """What one run has found: the others' 99th percentile in ms, and the share of a core while nothing is published."""

    def __init__(self, slowest: float, cpu: float) -> None:
        self.slowest = slowest
        self.cpu = cpu


def _compare(what: str, run: _Run, calm: _Run, most: float) -> list[Figure]:
    more = Figure(f"{what}: more CPU than without", [run.cpu - calm.cpu], "% of a core", Target(1, at_most=True))
    return [_ratio(what, run, calm, most), more]


def _ratio(what: str, run: _Run, calm: _Run, most: float) -> Figure:
    return Figure(
        f"{what}: others' 99th, times that without", [run.slowest / calm.slowest], "", Target(most, at_most=True)
    )


async def _run(place: Place, trouble: Trouble) -> _Run:
    async with scene(place) as (house, bus):
        await bus.subscribe("k0", topics=(TOPIC,), timeout_ms=0)
        await trouble(bus)
        started = {name: (await house.start(name)).pid for name in ("feedback-bus", "worker", "scheduler")}
        await _publish(house, bus, _WARM_UP)
        meter = Meter(started)
        await asyncio.sleep(_IDLE_SECONDS)
        cpu = sum(meter.used().values()) / _IDLE_SECONDS * 100
        await _publish(house, bus, RATE * _SECONDS)
        found = _of_others(bus)[_WARM_UP:]
        return _Run(quantiles(found, n=100, method="inclusive")[98], cpu)


async def _publish(house: House, bus: Delivering, count: int) -> None:
    before = len(_of_others(bus))
    await publish_at_rate(house, count)
    await until(lambda: len(_of_others(bus)) >= before + count, "all events", 60)


def _of_others(bus: Delivering) -> list[float]:
    return latencies(bus, "/k0")


async def _trouble_nobody(bus: Delivering) -> None:
    """Nothing."""


async def _add_dead(bus: Delivering) -> None:
    await bus.receiver.answer("/dead", 503)
    dead = await bus.subscribe("dead", max_events=1, timeout_ms=0)
    for _ in range(0, _BATCHES, _AT_ONCE):
        await bus.publish(dead, *["x"] * _AT_ONCE, wake=False)
    await _wake(bus, dead, _BATCHES)


async def _add_idle(bus: Delivering) -> None:
    for number in range(_IDLE):
        await add(bus.store, f"idle-{number}", "nothing", namespace=f"token:{number % _NAMESPACES}")


async def _add_hanging(bus: Delivering) -> None:
    for number in range(_HANGING):
        await bus.receiver.answer(f"/hangs-{number}", HANG)
        hanging = await bus.subscribe(f"hangs-{number}", max_events=1, timeout_ms=0)
        await bus.publish(hanging, *["x"] * _AT_ONCE, wake=False)
        await _wake(bus, hanging, _AT_ONCE)


async def _wake(bus: Delivering, subscription: EventSubscription, events: int) -> None:
    await bus.waker.wake([Wake(subscription.queue, await bus.time.now(), events)])
