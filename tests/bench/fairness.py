"""How late one caller's HTTP calls come while another caller does its worst within its limits."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from shared.clock.rules.callbacks import HttpCallback, RabbitCallback
from shared.clock.rules.recurrence import Every
from shared.clock.rules.schedules import Definition
from shared.clock.schedules import Accepted, Wanted
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.schedules import Sizes, clock_house
from tests.e2e.callees import OPEN, PAYLOAD, Callee, callee
from tests.e2e.house import House

WORST, OTHER = "token:worst", "token:other"
BEATS = 20
SILENT = 60.0
_LATEST = 1.0
_START, _PATIENCE = 10, 60.0
_CHUNK = 1_000
_SECOND = timedelta(seconds=1)

Worst = Callable[[datetime], Definition]


async def measure(place: Place, sizes: Sizes) -> list[Measured]:
    """Beside calls that are never answered, and beside a flood of series that nobody takes."""
    figures = []
    for calls in (sizes.silent // 5, sizes.silent):
        figures += await _figures(place, f"{calls:,} calls to a silent target", _beside_silence, calls)
    figures += await _figures(place, f"{sizes.flood:,} series of every second", _beside_flood, sizes.flood)
    note = (
        f"One call a second of another caller, {BEATS} of them, by one scheduler and one worker process; from their "
        "instants to the request. Calls that are never answered are of one instant; the series are sent to a queue "
        "that does not exist, and are tried again. Checked: each call comes once, none early."
    )
    return [Measured("fairness", figures, [note])]


async def _figures(
    place: Place, beside: str, run: Callable[[House, int], Awaitable[list[float]]], schedules: int
) -> list[Figure]:
    runs = []
    for _ in range(place.repeat):
        async with clock_house(place) as house:
            runs.append(await run(house, schedules))
    medians = [sorted(late)[BEATS // 2] for late in runs]
    latest = [max(late) for late in runs]
    return [
        Figure(f"late beside {beside}, median", medians, "s"),
        Figure(f"late beside {beside}, longest", latest, "s", Target(_LATEST, at_most=True)),
    ]


async def _beside_silence(house: House, calls: int) -> list[float]:
    async with callee(thinks_for=SILENT) as silent:
        call = HttpCallback(url=silent.url, payload=PAYLOAD)
        return await late_beside(house, calls, lambda first: Definition(callback=call, instants=(first,)))


async def _beside_flood(house: House, series: int) -> list[float]:
    nowhere = RabbitCallback(queue="missing", payload="{}")
    return await late_beside(
        house, series, lambda first: Definition(callback=nowhere, recurrence=Every(seconds=1, anchor=first))
    )


async def late_beside(house: House, schedules: int, worst: Worst) -> list[float]:
    """By how many seconds each of another caller's calls came late, in the order of their instants, while one caller
    has so many schedules that come due."""
    await house.start("scheduler")
    await house.start("worker", **OPEN)
    async with callee() as healthy:
        first = await house.servers.time.now() + _START * _SECOND
        await _accept(house, WORST, [worst(first)] * schedules)
        call = HttpCallback(url=healthy.url, payload=PAYLOAD)
        beats = tuple(first + n * _SECOND for n in range(1, BEATS + 1))
        await _accept(house, OTHER, [Definition(callback=call, instants=beats)])
        await healthy.got(BEATS, seconds=_START + BEATS + _PATIENCE)
        return _lateness(healthy)


async def _accept(house: House, namespace: str, definitions: Sequence[Definition]) -> None:
    wanted = [Wanted(namespace, f"k{n}", definition) for n, definition in enumerate(definitions)]
    for start in range(0, len(wanted), _CHUNK):
        answers = await house.schedules.accept(wanted[start : start + _CHUNK])
        if not all(isinstance(answer, Accepted) and not answer.skipped for answer in answers):
            raise Wrong("it took too long to put the schedules in: they began meanwhile")


def _lateness(server: Callee) -> list[float]:
    calls = sorted(server.all, key=lambda each: each.due)
    late = [(each.at - each.due).total_seconds() for each in calls]
    if len({each.due for each in calls}) < len(calls) or min(late) < 0:
        raise Wrong(f"{len(calls)} calls, the earliest {min(late)} s late")
    return late
