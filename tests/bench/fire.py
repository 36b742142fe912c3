"""How fast schedulers fire a backlog that is due at one moment, to a durable quorum queue with confirms."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from statistics import median
from time import monotonic

from msgspec import Struct

from services.embedded.processes import free_port
from shared.clock.rules.schedules import schedule_id
from tests.bench.arrivals import Queue, queue_of
from tests.bench.machine import Meter
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.schedules import NAMESPACE, Sizes, clock_house, database, fill, key
from tests.bench.scraped import Samples, scraped, total
from tests.e2e.house import House, Process
from tests.waiting import until

_RATE, _WALL_SECONDS, _CONFLICTS_PERCENT = 8_000, 20, 1
_PACE = 2_000  # schedules that tell how fast they go in
_MARGIN = 2
_START_SECONDS, _READY_SECONDS = 2.0, 6.0
_LONGEST_SECONDS = 300.0
_MANY_CALLS = 10
_CALLS, _SECONDS = "carillon_call_seconds_count", "carillon_call_seconds_sum"
_runs = count()


class FireRun(Struct, frozen=True):
    """Entries a second from the first message to the last, seconds from the due moment to the last, CPU seconds by
    process, the share of claims that somebody else had in the end (percent), and for each call of the store or the
    broker how many there were and their mean time in ms, over all processes."""

    rate: float
    seconds: float
    cpu_seconds: dict[str, float]
    conflicts: float
    calls: dict[str, tuple[float, float]]


async def measure(place: Place, sizes: Sizes) -> list[Measured]:
    """By one process, and by two, in turns."""
    one, two = await _by(place, sizes.fire, 1, 2)
    figures = [
        Figure("one process", [run.rate for run in one], "entries/s", Target(_RATE)),
        Figure("two processes", [run.rate for run in two], "entries/s"),
        _ratio("two processes / one", one, two),
        *_cpu("one process: ", one),
        *_cpu("two processes: ", two),
        *calls_of(one),
    ]
    return [Measured("fire", figures, [_note(sizes.fire)])]


async def measure_wall(place: Place, sizes: Sizes) -> list[Measured]:
    """A second in which very much is due."""
    [runs] = await _by(place, sizes.wall, 1)
    bound = Target(_WALL_SECONDS, at_most=True)
    figures = [
        Figure("from the due moment to the last message", [run.seconds for run in runs], "s", bound),
        Figure("from the first message to the last", [run.rate for run in runs], "entries/s"),
        *_cpu("", runs),
    ]
    return [Measured("wall: one process", figures, [_note(sizes.wall)])]


async def measure_schedulers(place: Place, sizes: Sizes) -> list[Measured]:
    """Four schedulers where one would do."""
    one, four = await _by(place, sizes.race, 1, 4)
    bound = Target(_CONFLICTS_PERCENT, at_most=True)
    figures = [
        Figure("one process", [run.rate for run in one], "entries/s"),
        Figure("four processes", [run.rate for run in four], "entries/s"),
        _ratio("four processes / one", one, four),
        Figure("from the due moment to the last message, one process", [run.seconds for run in one], "s"),
        Figure("from the due moment to the last message, four processes", [run.seconds for run in four], "s"),
        Figure("claims in conflict, four processes", [run.conflicts for run in four], "%", bound),
        *_cpu("four processes: ", four),
        *calls_of(four),
    ]
    return [Measured("schedulers", figures, [_note(sizes.race)])]


def _ratio(what: str, one: Sequence[FireRun], more: Sequence[FireRun]) -> Figure:
    ratios = [its.rate / mine.rate for mine, its in zip(one, more, strict=True)]
    return Figure(what, ratios, target=Target(1))


def _cpu(who: str, runs: Sequence[FireRun]) -> list[Figure]:
    return [
        Figure(f"{who}CPU of {name}", [run.cpu_seconds[name] for run in runs], "s")
        for name in runs[0].cpu_seconds
        if median(run.cpu_seconds[name] for run in runs) >= 0.05
    ]


def calls_of(runs: Sequence[FireRun]) -> list[Figure]:
    """What the processes asked of the store and the broker: how long a call took on the average."""
    names = sorted({name for run in runs for name in run.calls})
    return [
        Figure(f"{name}, {number:,.0f} calls: the mean", [mean for _, mean in found], "ms")
        for name in names
        if (found := [run.calls[name] for run in runs if name in run.calls])
        and (number := median(number for number, _ in found)) >= _MANY_CALLS
    ]


def _note(entries: int) -> str:
    return (
        f"{entries:,} schedules of one instant, all the same one, with a callback to one queue; nobody consumes "
        "meanwhile. Checked: nothing is there before the instant by the database's clock, every key has one message, "
        "nothing is left in the store."
    )


async def _by(place: Place, entries: int, *processes: int) -> list[list[FireRun]]:
    """Runs by so many processes each, in turns: what the machine does meanwhile meets all alike."""
    runs: list[list[FireRun]] = [[] for _ in processes]
    async with clock_house(place) as house, queue_of(house) as queue:
        for _ in range(place.repeat):
            for number, found in zip(processes, runs, strict=True):
                found.append(await fired(place, house, queue, entries, processes=number))
    return runs


async def fired(place: Place, house: House, queue: Queue, entries: int, *, processes: int) -> FireRun:
    """One backlog, by processes that have done nothing before."""
    prefix = f"run-{next(_runs)}-"
    seconds = _READY_SECONDS + processes * _START_SECONDS + await _to_fill(house, entries)
    now = await house.servers.time.now()
    due = (now + timedelta(seconds=seconds)).replace(microsecond=0)
    await fill(house, entries, lambda _: due, prefix=prefix)
    ports = [free_port() for _ in range(processes)]
    schedulers = [await house.start("scheduler", CARILLON_HEALTH_PORT=str(port)) for port in ports]
    if house.servers.time.reckon() > due - timedelta(seconds=3):
        raise Wrong("it took too long to put the backlog in: nothing could be claimed ahead")
    meter = Meter(_named(schedulers) | place.pids)
    filling = await queue.filled(entries, due, seconds=_LONGEST_SECONDS)
    used = meter.used()
    await _settled(house, prefix)
    found = [await scraped(port) for port in ports]
    for scheduler in schedulers:
        await scheduler.end()
    await queue.check([key(prefix, n) for n in range(entries)])
    claimed = sum(total(each, "carillon_occurrences_claimed_total") for each in found)
    conflicts = sum(total(each, "carillon_occurrences_conflicts_total") for each in found)
    return FireRun(filling.rate, filling.seconds, used, conflicts / claimed * 100, _calls(found))


async def _to_fill(house: House, entries: int) -> float:
    """How many seconds so many schedules will take to put in, with a margin: by how long a few take now."""
    began = monotonic()
    now = await house.servers.time.now()
    await fill(house, _PACE, lambda _: now + timedelta(days=365), prefix=f"pace-{next(_runs)}-")
    return (monotonic() - began) / _PACE * entries * _MARGIN


def _calls(found: Sequence[Samples]) -> dict[str, tuple[float, float]]:
    numbers: dict[str, float] = defaultdict(float)
    seconds: dict[str, float] = defaultdict(float)
    for samples in found:
        for (name, labels), value in samples.items():
            if name in {_CALLS, _SECONDS} and labels[0].startswith(("store.", "broker")):
                (numbers if name == _CALLS else seconds)[".".join(labels)] += value
    return {name: (number, seconds[name] / number * 1000) for name, number in numbers.items() if number}


def _named(schedulers: Sequence[Process]) -> dict[str, int]:
    if len(schedulers) == 1:
        return {"scheduler": schedulers[0].pid}
    return {f"scheduler {number}": each.pid for number, each in enumerate(schedulers, start=1)}


async def _settled(house: House, prefix: str) -> None:
    """Wait until all that was fired is completed too: whoever comes next would fire it again."""
    first = f"schedule/{schedule_id(NAMESPACE, prefix)}"
    owner = {"$gte": first, "$lt": f"{first}\x7f"}

    async def none_left() -> bool:
        await asyncio.sleep(0.2)
        return await database(house)["occurrences"].find_one({"owner": owner}) is None

    await until(none_left, "what was fired to be completed", 60)
