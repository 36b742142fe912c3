"""Dividing an audience of 20 million among all time zones, and planning the jobs of all zones."""

from time import perf_counter

from shared.audience.rules.zones import offsets, zones
from shared.jobs.rules.groups import Group, make_group
from shared.jobs.watch import sum_up
from tests.bench.audience import fill
from tests.bench.jobs import until
from tests.bench.machine import Meter, memory
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.e2e.house import House

_DAY_NS = 86_400 * 10**9
_LONGEST_SECONDS = 1_200
_TARGET_RATE = 333_000  # 20 million in a minute


async def measure(place: Place) -> list[Measured]:
    """One group, none of whose jobs has begun to send."""
    async with place.house() as house:
        await fill(house, place.devices, tz=_somewhere())
        worker = await house.start("worker")
        before = memory(worker.pid).peak
        start = house.servers.clock.now_ns() + _DAY_NS
        job = house.job(starts_at=start, localized=True)
        group, _ = await house.groups.start(make_group(job, [(zone, start) for zone in zones()]))
        meter = Meter({"worker": worker.pid, **place.pids})
        began = perf_counter()
        await _planned(house, group, group.job_ids[:1])
        divided, used = perf_counter() - began, meter.used()
        await _planned(house, group, group.job_ids[1:])
        planned = perf_counter() - began
        peak = memory(worker.pid).peak
        await _check(house, group, place.devices)
    figures = [
        Figure("until the division is complete, and the first zone planned", [divided], "s"),
        Figure("devices divided", [place.devices / divided], "devices/s", Target(_TARGET_RATE)),
        *(Figure(f"CPU of {name} for that", [spent], "s") for name, spent in used.items()),
        Figure("until all zones are planned", [planned], "s"),
        Figure("worker, memory before", [before], "MB"),
        Figure("worker, peak memory", [peak], "MB", Target(300, at_most=True)),
    ]
    note = f"{len(zones())} zones of scattered devices. Checked: all lists together have as many as the table."
    return [Measured(f"divide: {place.devices:,} devices", figures, [note])]


def _somewhere() -> str:
    """SQL for the `tz` of device n: neighbours are in different zones."""
    texts = ", ".join(f"'{offset}'" for offset in offsets())
    return f"(ARRAY[{texts}, NULL])[1 + abs(hashint8(n)::bigint) % {len(zones())}]"


async def _planned(house: House, group: Group, job_ids: tuple[str, ...]) -> None:
    for job_id in job_ids:
        await house.feed.plan(job_id)
    for job_id in job_ids:
        await until(house, job_id, lambda job: job.plan.end is not None, every=0.02, seconds=_LONGEST_SECONDS)


async def _check(house: House, group: Group, devices: int) -> None:
    totals = await sum_up(house.servers.store, await house.groups.jobs(group))
    planned = sum(each.planned for each in totals.values())
    if planned != devices:
        raise Wrong(f"{planned:,} of {devices:,} devices are planned")
