"""How fast entries are claimed, read and completed when nothing is fired, and how many round trips a slice takes.

It is the scheduler's own clock with a `Firing` that completes at once, in a process of its own:
`python -m tests.bench.claim` reads settings from the environment and says what it measured as JSON.
"""

import asyncio
import json
import os
import sys
from datetime import datetime, timedelta
from time import perf_counter, process_time

import msgspec
import pymongo.monitoring
import uvloop
from msgspec import Struct

from services.scheduler.clock import TickingClock
from services.wiring.servers import Servers
from shared.clock.rules.occurrences import Occurrence
from shared.runtime import lifecycle
from shared.runtime.configuration import load
from shared.store import Store
from tests.bench.machine import Meter
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.schedules import Sizes, clock_house, database, far_ahead, fill_pending
from tests.commands import Commands
from tests.e2e.house import House

_RATE, _ROUND_TRIPS = 7_000, 4
_LONGEST_SECONDS = 120


class ClaimRun(Struct, frozen=True):
    """Seconds from the first claim to the last deletion, the process's CPU seconds, commands by name, slices."""

    seconds: float
    cpu_seconds: float
    commands: dict[str, int]
    slices: int
    entries: int


class Completing:
    """A `Firing` that has nothing to do but to complete. `done` is set when so many have been."""

    def __init__(self, store: Store, entries: int) -> None:
        self.done = asyncio.Event()
        self._store = store
        self._left = entries

    async def fire(self, due: list[Occurrence], *, trusted_until: float) -> bool:
        await self._store.occurrences.complete(due)
        self._left -= len(due)
        if self._left <= 0:
            self.done.set()
        return False


async def measure(place: Place, sizes: Sizes) -> list[Measured]:
    """Some are due, among a million that are not."""
    runs, database_cpu = [], []
    async with clock_house(place) as house:
        now = await house.servers.time.now()
        await fill_pending(house.servers.store, sizes.pending, far_ahead(now), now)
        for _ in range(place.repeat):
            await _backlog(house, sizes.claimed)
            meter = Meter(place.pids)
            runs.append(await _in_a_process(house, sizes.claimed))
            database_cpu.append(meter.used().get("mongo", 0))
            await _check(house, sizes.pending)
    commands = runs[0].commands
    trips = [sum(run.commands.values()) / run.slices for run in runs]
    figures = [
        Figure("claimed, read and completed", [run.entries / run.seconds for run in runs], "entries/s", Target(_RATE)),
        Figure("round trips a slice, on the average", trips, target=Target(_ROUND_TRIPS, at_most=True)),
        Figure("entries a slice, on the average", [run.entries / run.slices for run in runs]),
        Figure("CPU of the clock's process", [run.cpu_seconds for run in runs], "s"),
        Figure("CPU of mongo", database_cpu, "s"),
    ]
    note = (
        f"{sizes.claimed:,} due entries among {sizes.pending:,} that are not, by one clock whose firing completes at "
        f"once. Round trips are all commands of the process ({_told(commands)}). Checked: what was due is gone, the "
        "others are all there."
    )
    return [Measured("claim", figures, [note])]


def _told(commands: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(commands.items()))


async def _backlog(house: House, entries: int) -> None:
    """Entries that have come due in the last minute."""
    now = await house.servers.time.now()
    since = now - timedelta(minutes=1)

    def due(n: int) -> datetime:
        return since + timedelta(milliseconds=n % 59_000)

    await fill_pending(house.servers.store, entries, due, since)


async def _in_a_process(house: House, entries: int) -> ClaimRun:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.claim", str(entries),
        env={**os.environ, **house.environment}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told, _ = await child.communicate()
    if child.returncode != 0:
        raise Wrong(f"the clock's process ended with {child.returncode}")
    return msgspec.json.decode(told, type=ClaimRun)


async def _check(house: House, pending: int) -> None:
    now = await house.servers.time.now()
    occurrences = database(house)["occurrences"]
    left = await occurrences.count_documents({"due": {"$lt": now}})
    others = await occurrences.count_documents({})
    if left or others != pending:
        raise Wrong(f"{left:,} that were due are left, {others:,} of {pending:,} others")


async def _claimed(entries: int) -> ClaimRun:
    """Let a clock do what is due; the time goes from its first look."""
    commands = Commands()
    pymongo.monitoring.register(commands)
    servers = Servers(load(os.environ), service="scheduler")
    try:
        await servers.time.now()
        firing = Completing(servers.store, entries)
        clock = TickingClock(servers.store, servers.time, firing, servers.settings.scheduler)
        lifecycle.settle_in()
        commands.counts.clear()
        began, used = perf_counter(), process_time()
        await clock.start()
        async with asyncio.timeout(_LONGEST_SECONDS):
            await firing.done.wait()
        seconds, spent, counts = perf_counter() - began, process_time() - used, dict(commands.counts)
        await clock.stop()
    finally:
        await servers.close()
    return ClaimRun(seconds, spent, counts, slices=counts.get("update", 1), entries=entries)


if __name__ == "__main__":
    print(json.dumps(msgspec.to_builtins(uvloop.run(_claimed(int(sys.argv[1]))))))
