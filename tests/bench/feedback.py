"""How fast the feedback service folds what lies ready for it, and whether each record is counted once."""

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Sequence
from itertools import count
from time import monotonic, time_ns

from aiokafka import AIOKafkaProducer
from msgspec import Struct

from shared.jobs.rules.jobs import JobStatus
from tests.bench import bus
from tests.bench.machine import Meter, memory
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.topics import PARTITIONS, Topic
from tests.e2e.house import House

_JOBS = 20
_OUTCOMES = ("ack", *["ack"] * 6, "unregistered", "bad-device-token", "unexpected")
_FLUSH_SECONDS = 1.0
_EVENTS = 1_000_000

Counts = Counter[tuple[str, str]]
"""Records by job and outcome."""


class FoldRun(Struct, frozen=True):
    """Records a second, seconds from the start of the process, its CPU seconds and peak memory, bytes a record."""

    rate: float
    seconds: float
    cpu_seconds: float
    peak_mb: float
    record_bytes: float


async def measure(place: Place) -> list[Measured]:
    """A million records lie on one topic before the service starts, alone or beside a million events of the bus."""
    runs, figures = list[FoldRun](), list[Figure]()
    for events, what in ((0, ""), (_EVENTS, f", beside {_EVENTS:,} events of the bus")):
        runs = [await _run(place, events) for _ in range(place.repeat)]
        figures += [
            Figure(f"from flush to flush{what}", [run.rate for run in runs], "records/s", Target(100_000)),
            Figure(f"from the start of the process to the last flush{what}", [run.seconds for run in runs], "s"),
            Figure(f"CPU of the service, once ready{what}", [run.cpu_seconds for run in runs], "s"),
            Figure(f"its peak memory{what}", [run.peak_mb for run in runs], "MB"),
        ]
    note = (
        f"{place.devices:,} records of {runs[0].record_bytes:.0f} bytes on the average, {_JOBS} jobs, "
        f"{PARTITIONS} partitions, a flush each {_FLUSH_SECONDS:g} s. Checked: the counts of every job and outcome "
        "are exact."
    )
    return [Measured("feedback", figures, [note])]


async def _run(place: Place, events: int) -> FoldRun:
    async with bus.scene(place) as (house, queues):
        await queues.subscribe("k0", topics=(bus.TOPIC,), timeout_ms=3_600_000, max_events=10_000)
        await bus.publish_in_bulk(house, events)
        topic = Topic(place.servers.kafka_servers, f"{house.topic}-feedbacks")
        await topic.create()
        jobs = [await _job(house) for _ in range(_JOBS)]
        expected, record_bytes = await _prepare(place, topic, jobs)
        if events:
            await house.spawn("feedback-bus")
        began = monotonic()
        service = await house.start(
            "feedback-answers",
            CARILLON_FEEDBACK_TOPICS=f"^{topic.name}$",
            CARILLON_FEEDBACK_GROUP=house.app,
            CARILLON_FEEDBACK_FLUSH_SECONDS=str(_FLUSH_SECONDS),
        )
        meter = Meter({"feedback": service.pid})
        flushes = await _flushes(house, place.devices)
        used, peak = meter.used()["feedback"], memory(service.pid).peak
        await _check(house, expected)
        if events and not await queues.store._database["bus_chunks"].count_documents({}):
            raise Wrong("the events were not read meanwhile")
        await topic.delete()
    return FoldRun(_steady(flushes), flushes[-1][0] - began, used, peak, record_bytes)


async def _job(house: House) -> str:
    job = house.job(status=JobStatus.PAUSED)
    await house.servers.store.jobs.add(job)
    return job.id


async def _prepare(place: Place, topic: Topic, jobs: Sequence[str]) -> tuple[Counts, float]:
    """Put the records on the topic; the counts that they ought to make, and their mean size."""
    kinds = [(job, outcome) for job in jobs for outcome in _OUTCOMES]
    records = [(kind, _record(*kind)) for kind in kinds for _ in range(20)]
    chosen = random.Random(1).choices(records, k=place.devices)
    producer = AIOKafkaProducer(bootstrap_servers=place.servers.kafka_servers, acks="all", max_batch_size=512 * 1024)
    await producer.start()
    try:
        await _append(producer, topic, [value for _, value in chosen])
    finally:
        await producer.stop()
    return Counter(kind for kind, _ in chosen), sum(len(value) for _, value in chosen) / len(chosen)


async def _append(producer: AIOKafkaProducer, topic: Topic, values: Sequence[bytes]) -> None:
    left = iter(values)
    value = next(left, None)
    for turn in count():
        if value is None:
            return
        builder = producer.create_batch()
        while value is not None and builder.append(timestamp=None, key=None, value=value) is not None:
            value = next(left, None)
        await (await producer.send_batch(builder, topic.name, partition=turn % PARTITIONS))


def _record(job_id: str, outcome: str) -> bytes:
    """What the receiver of APNS records says: of a failure as it does today, of a success as it did before."""
    token, user, now = uuid.uuid4().hex * 2, uuid.uuid4(), time_ns() // 1_000_000_000
    failure = f'{{"Key":"{outcome}","Description":"Unregistered"}}' if outcome != "ack" else "null"
    return (
        f'{{"Sent":{"false" if failure != "null" else "true"},"StatusCode":400,"Reason":"",'
        f'"ApnsID":"{uuid.uuid4()}","Err":{failure},"DeviceToken":"{token}","timestamp":{now},'
        f'"metadata":{{"jobId":"{job_id}","muid":"{uuid.uuid4()}","pushTime":{now},"pushType":"massive",'
        f'"templateName":"like","userId":"{user}","game":"mygame","hostname":"pusher-0"}},'
        '"Notification":{"aps":{"alert":"Ana liked your photo"},"templateName":"like"}}'
    ).encode()


async def _flushes(house: House, records: int) -> list[tuple[float, int]]:
    """When each flush had ended, and how many records were counted then."""
    flushes: list[tuple[float, int]] = []
    last, since, deadline = 0, monotonic(), monotonic() + 120
    while not flushes or flushes[-1][1] < records:
        if monotonic() > deadline:
            raise Wrong(f"{last:,} of {records:,} records counted in 120 s\n{house.logs()}")
        counted = sum((await _counts(house)).values())
        if counted != last:
            last, since = counted, monotonic()
        elif counted and monotonic() - since > _FLUSH_SECONDS / 3 and (not flushes or flushes[-1][1] != counted):
            flushes.append((since, counted))
        await asyncio.sleep(0.05)
    return flushes


def _steady(flushes: Sequence[tuple[float, int]]) -> float:
    """Records a second from the first flush to the last that still had a full interval behind it."""
    if len(flushes) < 3:
        raise Wrong("too few records to see a rate: more are needed")
    (began, before), (ended, after) = flushes[0], flushes[-2]
    if after == before:
        (ended, after) = flushes[-1]
    return (after - before) / (ended - began)


async def _counts(house: House) -> Counts:
    counts: Counts = Counter()
    async for key in house.servers.store.open_jobs.open_keys():
        if (job := await house.servers.store.jobs.get(key)) is not None:
            counts.update({(job.id, outcome): number for outcome, number in job.feedbacks.items()})
    return counts


async def _check(house: House, expected: Counts) -> None:
    counts = await _counts(house)
    if counts != expected:
        raise Wrong(f"counted {sum(counts.values()):,} of {sum(expected.values()):,}, or under other names")
