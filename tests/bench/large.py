"""An audience of 20 million, planned and sent: the worker's memory must not grow with it."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic

from msgspec import Struct

from tests.bench.audience import RECORD_BYTES, fill
from tests.bench.jobs import check_sums, closed
from tests.bench.machine import Meter, memory
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.topics import Topic
from tests.e2e.house import House
from tests.stack.places import home

DEVICES = 20_000_000
_LONGEST_SECONDS = 3600
_BYTES_A_DEVICE = 1_000  # 720 measured: a row, its index and its write-ahead log, and a record


class LargeRun(Struct, frozen=True):
    """What one job over the whole audience took: seconds, records a second, the worker's memory each second and at its
    peak (MB), CPU seconds by process, GB of disk."""

    seconds: float
    rate: float
    samples: Sequence[float]
    peak_mb: float
    cpu_seconds: dict[str, float]
    disk_gb: float


async def measure(place: Place) -> list[Measured]:
    """One job, one worker."""
    free = shutil.disk_usage(home()).free
    if free < place.devices * _BYTES_A_DEVICE:
        raise Wrong(f"{place.devices:,} devices need some {place.devices * _BYTES_A_DEVICE / 1e9:.0f} GB of disk")
    async with place.house() as house:
        await fill(house, place.devices)
        topic = Topic(place.servers.kafka_servers, house.topic)
        await topic.create()
        run = await _run(place, house, topic, free)
    note = "Planned and sent by one worker process. Checked: every device has exactly one committed record."
    return [Measured(f"large: {place.devices:,} devices", _figures(run), [note])]


def _figures(run: LargeRun) -> list[Figure]:
    quarter = len(run.samples) // 4 or 1
    first, last = max(run.samples[:quarter]), max(run.samples[-quarter:])
    return [
        Figure("from the job's start to its end", [run.seconds], "s"),
        Figure("from the first record to the last", [run.rate], "records/s"),
        Figure("worker, peak memory", [run.peak_mb], "MB", Target(200, at_most=True)),
        Figure("worker, peak in the first quarter of the time", [first], "MB"),
        Figure("worker, peak in the last quarter of the time", [last], "MB"),
        Figure("last quarter / first quarter", [last / first], target=Target(1.1, at_most=True)),
        *(Figure(f"CPU of {name}", [spent], "s") for name, spent in run.cpu_seconds.items()),
        Figure("disk in use for it all", [run.disk_gb], "GB"),
    ]


async def _run(place: Place, house: House, topic: Topic, free: int) -> LargeRun:
    since = await topic.ends()
    worker = await house.start("worker")
    await house.start("scheduler")
    meter = Meter({"worker": worker.pid, **place.pids})
    began = monotonic()
    async with _sampled(worker.pid) as samples:
        job = await closed(house, await house.post(), every=1, seconds=_LONGEST_SECONDS)
    seconds = monotonic() - began
    used, peak = meter.used(), memory(worker.pid).peak
    await house.end()
    disk_gb = (free - shutil.disk_usage(home()).free) / 1e9
    check_sums(job, place.devices)
    appended = await topic.appended(since)
    if appended is None:
        raise Wrong("nothing was sent")
    await topic.check(since, devices=place.devices, size=RECORD_BYTES)
    return LargeRun(seconds, appended.rate(place.devices), samples, peak, used, disk_gb)


@asynccontextmanager
async def _sampled(pid: int) -> AsyncIterator[list[float]]:
    """The process's memory in MB, each second for as long as the block runs."""
    samples: list[float] = []

    async def sample() -> None:
        while True:
            samples.append(memory(pid).now)
            await asyncio.sleep(1)

    sampling = asyncio.create_task(sample())
    try:
        yield samples
    finally:
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
