"""Ten million schedules pending over ten years: what they cost a scheduler, a caller who lists them, and what is due.

All are of one caller, one instant each, so there are as many schedules as occurrences: pages are read from the longest
list there can be.
"""

import shutil
from collections.abc import Awaitable, Callable
from time import monotonic

from msgspec import Struct

from shared.core.errors import CarillonError
from tests.bench import fire, idle, pages
from tests.bench.arrivals import Queue, queue_of
from tests.bench.machine import Meter, memory
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Wrong
from tests.bench.schedules import Sizes, clock_house, far_ahead, fill
from tests.e2e.house import House
from tests.stack.places import home, say

_PREFIX = "large-"
_DUE = 10_000
_BYTES_AN_ENTRY = 4_000


class Filled(Struct, frozen=True):
    """Putting them in: seconds, CPU seconds of the database, GB of disk."""

    seconds: float
    database_cpu: float
    disk_gb: float


async def measure(place: Place, sizes: Sizes) -> list[Measured]:
    """Fill, idle, fire, list."""
    if shutil.disk_usage(home()).free < sizes.large * _BYTES_AN_ENTRY:
        raise Wrong(f"{sizes.large:,} schedules need some {sizes.large * _BYTES_AN_ENTRY / 1e9:.0f} GB of disk")
    async with clock_house(place) as house, queue_of(house) as queue:
        filled = await _filled(place, house, sizes.large)
        figures = _filling(filled, sizes.large)
        note = _note(sizes.large)
        # Pages come last: the database may still be reading those that were given up.
        parts: dict[str, Callable[[], Awaitable[list[Figure]]]] = {
            "idling": lambda: _idling(place, house),
            "firing": lambda: _firing(place, house, queue),
            "pages": lambda: pages.figures(house, _PREFIX, sizes.large),
        }
        for what, part in parts.items():
            say(f"measuring: {what}")
            try:
                figures += await part()
            except (Wrong, TimeoutError, CarillonError) as fault:
                raise Wrong(f"{what}: {fault}", [Measured(_title(sizes.large), figures, [note])]) from fault
        figures += _memories(place)
    return [Measured(_title(sizes.large), figures, [note])]


def _title(pending: int) -> str:
    return f"clock, large: {pending:,} pending"


def _note(pending: int) -> str:
    return (
        f"{pending:,} schedules of one caller with one instant each, over ten years; pages by GET /schedules over "
        "one connection that stays open, of 100 schedules where nothing else is said. "
        f"Then {_DUE:,} more that are due at one moment, as in `fire`. Checked: nothing that is pending is claimed, "
        "every page begins with the key it must and is in order, what is due comes once and not early."
    )


async def _filled(place: Place, house: House, pending: int) -> Filled:
    free, began, meter = shutil.disk_usage(home()).free, monotonic(), Meter(place.pids)
    await fill(house, pending, far_ahead(await house.servers.time.now()), prefix=_PREFIX)
    disk_gb = (free - shutil.disk_usage(home()).free) / 1e9
    return Filled(monotonic() - began, meter.used().get("mongo", 0), disk_gb)


def _filling(filled: Filled, pending: int) -> list[Figure]:
    return [
        Figure("put in, without HTTP", [pending / filled.seconds], "schedules/s"),
        Figure("CPU of MongoDB for it", [filled.database_cpu], "s"),
        Figure("disk in use for it", [filled.disk_gb], "GB"),
    ]


async def _idling(place: Place, house: House) -> list[Figure]:
    return idle.figures([await idle.idled(place, house) for _ in range(place.repeat)])


async def _firing(place: Place, house: House, queue: Queue) -> list[Figure]:
    runs = [await fire.fired(place, house, queue, _DUE, processes=1) for _ in range(place.repeat)]
    return [
        Figure("fired, from the first message to the last", [run.rate for run in runs], "entries/s"),
        Figure("from the due moment to the last message", [run.seconds for run in runs], "s"),
        *fire.calls_of(runs),
    ]


def _memories(place: Place) -> list[Figure]:
    if (pid := place.pids.get("mongo")) is None:
        return []
    found = memory(pid)
    return [Figure("MongoDB, memory", [found.now], "MB"), Figure("MongoDB, peak memory", [found.peak], "MB")]
