"""A job over a file of a million users by one worker process, from the request to the last record; the file lies in a
folder, because the tests' S3 copies the whole object for each range that is read."""

import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import asyncpg
from msgspec import Struct

from shared.jobs.rules.jobs import JobStatus
from tests.bench.audience import RECORD_BYTES, fill
from tests.bench.jobs import check_sums, closed, until
from tests.bench.machine import memory
from tests.bench.place import Place, execute
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.topics import Topic
from tests.e2e.house import House


class CsvRun(Struct, frozen=True):
    """Seconds from storing the job to its plan's end and to its own, and the worker's peak memory in MB."""

    planning: float
    whole: float
    peak_mb: float


async def measure(place: Place) -> list[Measured]:
    """Users in an order of their own, each in one line."""
    with tempfile.TemporaryDirectory() as folder:
        async with place.house(CARILLON_BLOBS_URL=Path(folder).as_uri()) as house:
            await fill(house, place.devices)
            push_database = house.environment["CARILLON_AUDIENCE_URL"]
            await execute(push_database, f'CREATE INDEX ON "{house.app}_apns" (user_id)', "VACUUM ANALYZE")
            topic = Topic(place.servers.kafka_servers, house.topic)
            await topic.create()
            size = await _write(house, Path(folder), push_database)
            runs = [await _run(place, house, topic) for _ in range(place.repeat)]
    figures = [
        Figure(f"planning a file of {size / 1e6:.0f} MB", [run.planning for run in runs], "s", Target(2, at_most=True)),
        Figure("from end to end", [place.devices / run.whole for run in runs], "records/s", Target(160_000)),
        Figure("worker, peak memory", [run.peak_mb for run in runs], "MB", Target(250, at_most=True)),
    ]
    note = (
        f"{place.devices:,} users in one column; from storing the job to its plan's end while it is held, and to the "
        "last settled batch when it is let go at once, in a worker process that has done nothing before. Checked: "
        "every device has exactly one committed record."
    )
    return [Measured("csv", figures, [note])]


async def _write(house: House, folder: Path, push_database: str) -> int:
    connection = await asyncpg.connect(push_database)
    rows = await connection.fetch(f'SELECT user_id FROM "{house.app}_apns" ORDER BY md5(user_id)')
    await connection.close()
    place = folder / house.servers.blobs.bucket / "users.csv"
    place.parent.mkdir()
    place.write_text("user_id\n" + "".join(f"{row[0]}\n" for row in rows))
    return place.stat().st_size


async def _run(place: Place, house: House, topic: Topic) -> CsvRun:
    planning = await _planning(house)
    since = await topic.ends()
    worker = await house.start("worker")
    began = perf_counter()
    job = await closed(house, await house.post(**_over_the_file(house)), every=0.02)
    whole, peak = perf_counter() - began, memory(worker.pid).peak
    await worker.end()
    check_sums(job, place.devices)
    await topic.check(since, devices=place.devices, size=RECORD_BYTES)
    return CsvRun(planning, whole, peak)


async def _planning(house: House) -> float:
    worker = await house.start("worker")
    job = house.job(status=JobStatus.PAUSED, **_over_the_file(house))
    began = perf_counter()
    await house.jobs.start(job)
    planned = await until(house, job.id, lambda job: job.plan.end is not None, every=0.01, seconds=120)
    seconds = perf_counter() - began
    if not planned.plan.end:
        raise Wrong(f"nothing was planned: {planned.failure}")
    await house.jobs.stop(job.id)
    await closed(house, job.id)
    await worker.end()
    return seconds


def _over_the_file(house: House) -> dict[str, Any]:
    return {"csv_path": f"{house.servers.blobs.bucket}/users.csv"}
