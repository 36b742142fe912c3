"""An audience of 20 million, planned and sent: the worker's memory must not grow with it."""

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

from tests.bench.audience import RECORD_BYTES, fill
from tests.bench.jobs import check_sums, closed
from tests.bench.machine import Meter, memory
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.topics import Topic
from tests.stack.places import home

DEVICES = 20_000_000
_LONGEST_SECONDS = 3600
_BYTES_A_DEVICE = 2_000  # a row with its index and write-ahead log, and a record


async def measure(place: Place) -> list[Measured]:
    """One job, one worker."""
    free = shutil.disk_usage(home()).free
    if free < place.devices * _BYTES_A_DEVICE:
        raise Wrong(f"{place.devices:,} devices need some {place.devices * _BYTES_A_DEVICE / 1e9:.0f} GB of disk")
    async with place.house() as house:
        await fill(house, place.devices)
        topic = Topic(place.servers.kafka_servers, house.topic)
        await topic.create()
        since = await topic.ends()
        worker = await house.start("worker")
        await house.start("scheduler")
        meter = Meter({"worker": worker.pid, **place.pids})
        samples: list[float] = []
        sampling = asyncio.create_task(_sample(worker.pid, samples))
        began = monotonic()
        job = await closed(house, await house.post(), every=1, seconds=_LONGEST_SECONDS)
        seconds = monotonic() - began
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        used, peak = meter.used(), memory(worker.pid).peak
        await house.end()
        disk = free - shutil.disk_usage(home()).free
        check_sums(job, place.devices)
        appended = await topic.appended(since)
        if appended is None:
            raise Wrong("nothing was sent")
        await topic.check(since, devices=place.devices, size=RECORD_BYTES)
        await topic.delete()
    quarter = len(samples) // 4 or 1
    figures = [
        Figure("from the job's start to its end", [seconds], "s"),
        Figure("from the first record to the last", [appended.rate(place.devices)], "records/s"),
        Figure("worker, peak memory", [peak], "MB", Target(200, at_most=True)),
        Figure("worker, peak in the first quarter of the time", [max(samples[:quarter])], "MB"),
        Figure("worker, peak in the last quarter of the time", [max(samples[-quarter:])], "MB"),
        Figure("last quarter / first quarter", [_growth(samples, quarter)], target=Target(1.1, at_most=True)),
        *(Figure(f"CPU of {name}", [spent], "s") for name, spent in used.items()),
        Figure("disk in use for it all", [disk / 1e9], "GB"),
    ]
    note = "Planned and sent by one worker process. Checked: every device has exactly one committed record."
    return [Measured(f"large: {place.devices:,} devices", figures, [note])]


def _growth(samples: Sequence[float], quarter: int) -> float:
    return max(samples[-quarter:]) / max(samples[:quarter])


async def _sample(pid: int, samples: list[float]) -> None:
    while True:
        samples.append(memory(pid).now)
        await asyncio.sleep(1)
