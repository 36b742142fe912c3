"""What a scheduler costs that has nothing to do, while a million entries wait for their time."""

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from services.embedded.processes import free_port
from tests.bench.machine import Meter, memory
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.schedules import Sizes, clock_house, far_ahead, fill_pending
from tests.bench.scraped import calls, scraped, total
from tests.e2e.house import House

_SETTLE_SECONDS = 5.0
_SECONDS = 30.0
# A tick is a pause of a second after the last look, so a look a second is a little less; the margin is for rounding.
_CLAIMS, _ALL, _CPU_PERCENT = 1.05, 2, 2


class IdleRun(Struct, frozen=True):
    """Queries a second (those for claims, all), the shares of a core of the scheduler and of the database in percent,
    the scheduler's memory in MB."""

    claims: float
    all: float
    cpu: float
    database_cpu: float
    memory_mb: float


async def measure(place: Place, sizes: Sizes) -> list[Measured]:
    """One scheduler process."""
    async with clock_house(place) as house:
        now = await house.servers.time.now()
        await fill_pending(house.servers.store, sizes.pending, far_ahead(now), now)
        runs = [await idled(place, house) for _ in range(place.repeat)]
    note = (
        f"{sizes.pending:,} entries pending over ten years; {_SECONDS:g} s, {_SETTLE_SECONDS:g} s after the start. "
        "Queries are the calls of the store that the process counts itself. Checked: nothing is claimed."
    )
    return [Measured("idle", figures(runs), [note])]


def figures(runs: Sequence[IdleRun]) -> list[Figure]:
    """As they stand beside their targets."""
    return [
        Figure("queries for claims", [run.claims for run in runs], "/s", Target(_CLAIMS, at_most=True)),
        Figure("queries in all", [run.all for run in runs], "/s", Target(_ALL, at_most=True)),
        Figure("scheduler, share of a core", [run.cpu for run in runs], "%", Target(_CPU_PERCENT, at_most=True)),
        Figure("scheduler, memory", [run.memory_mb for run in runs], "MB"),
        Figure("MongoDB, share of a core", [run.database_cpu for run in runs], "%"),
    ]


async def idled(place: Place, house: House) -> IdleRun:
    """One process that has just started, watched for a while."""
    port = free_port()
    scheduler = await house.start("scheduler", CARILLON_HEALTH_PORT=str(port))
    await asyncio.sleep(_SETTLE_SECONDS)
    before = await scraped(port)
    meter = Meter({"scheduler": scheduler.pid, "mongo": place.pids.get("mongo", scheduler.pid)})
    await asyncio.sleep(_SECONDS)
    used, after = meter.used(), await scraped(port)
    resident = memory(scheduler.pid).now
    await scheduler.end()
    if total(after, "carillon_occurrences_claimed_total"):
        raise Wrong("something was claimed that is due tomorrow")
    claims = calls(after, "store.occurrences", "heads") - calls(before, "store.occurrences", "heads")
    all_ = calls(after, "store.") - calls(before, "store.")
    return IdleRun(
        claims / _SECONDS,
        all_ / _SECONDS,
        used["scheduler"] / _SECONDS * 100,
        used["mongo"] / _SECONDS * 100,
        resident,
    )
