"""How late messages come when the scheduler has little to do."""

from collections.abc import Sequence
from datetime import timedelta
from statistics import quantiles

from tests.bench.arrivals import Arrival, queue_of
from tests.bench.machine import Meter
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.schedules import Sizes, clock_house, database, fill, key
from tests.e2e.house import House
from tests.waiting import until

_EACH_SECOND = 200
_SECONDS = 15
_START_SECONDS = 8.0
_MEDIAN, _P99 = 50, 250


async def measure(place: Place, sizes: Sizes) -> list[Measured]:
    """An entry each few milliseconds, all accepted long before."""
    entries = _EACH_SECOND * _SECONDS
    async with clock_house(place) as house, queue_of(house) as queue:
        scheduler = await house.start("scheduler")
        now = await house.servers.time.now()
        first = now + timedelta(seconds=_START_SECONDS)
        gap = timedelta(seconds=1 / _EACH_SECOND)
        await fill(house, entries, lambda n: first + n * gap, prefix="late-")
        meter = Meter({"scheduler": scheduler.pid})
        async with queue.consumed() as arrivals:
            await until(lambda: len(arrivals) >= entries, f"{entries} messages", _START_SECONDS + _SECONDS + 30)
        used = meter.used()["scheduler"]
        _check(arrivals, entries)
        told = await _told(house, entries)
    outside = [(each.at - each.due) / timedelta(milliseconds=1) for each in arrivals]
    figures = [
        *_figures("arrival at the consumer", outside),
        *_figures("as the scheduler says", told),
        Figure("CPU of scheduler, over the whole time", [used], "s"),
    ]
    note = (
        f"{_EACH_SECOND} entries a second over {_SECONDS} s, each at a millisecond of its own, accepted "
        f"{_START_SECONDS:g} s and more ahead; a consumer of RabbitMQ reads the database's clock for each. Checked: "
        "every key came once, none early."
    )
    return [Measured("lateness", figures, [note])]


def _figures(what: str, late: Sequence[float]) -> list[Figure]:
    percent = quantiles(late, n=100, method="inclusive")
    return [
        Figure(f"{what}, median", [percent[49]], "ms", Target(_MEDIAN, at_most=True)),
        Figure(f"{what}, 99th of 100", [percent[98]], "ms", Target(_P99, at_most=True)),
        Figure(f"{what}, longest", [max(late)], "ms"),
    ]


def _check(arrivals: Sequence[Arrival], entries: int) -> None:
    if sorted(each.key for each in arrivals) != [key("late-", n) for n in range(entries)]:
        raise Wrong(f"{len(arrivals):,} messages for {entries:,} keys")
    if early := [each for each in arrivals if each.at < each.due]:
        raise Wrong(f"{len(early)} messages before they were due, the first at {early[0].at} for {early[0].due}")


async def _told(house: House, entries: int) -> list[float]:
    """The lateness in the stored outcomes."""

    async def all_stored() -> bool:
        return await database(house)["outcomes"].count_documents({}) >= entries

    await until(all_stored, "all outcomes", 30)
    return [float(each["late_ms"]) async for each in database(house)["outcomes"].find({}, {"late_ms": 1})]
