"""How fast the feedback service folds what lies ready for it, and whether each record is counted once."""

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Sequence
from time import monotonic, time_ns

from aiokafka import AIOKafkaProducer

from shared.domain.jobs import JobStatus
from tests.bench.machine import Meter, memory
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.topics import PARTITIONS, Topic
from tests.e2e.house import House

_JOBS = 20
_OUTCOMES = ("ack", *["ack"] * 6, "unregistered", "bad-device-token", "unexpected")
_FLUSH_SECONDS = 1.0

Counts = dict[str, Counter[str]]


async def measure(place: Place) -> list[Measured]:
    """A million records on one topic, then the service starts."""
    rates, totals, cpu, peaks, sizes = [], [], [], [], []
    for _ in range(place.repeat):
        async with place.house() as house:
            topic = Topic(place.servers.kafka_servers, f"{house.topic}-feedbacks")
            await topic.create()
            jobs = [await _job(house) for _ in range(_JOBS)]
            expected, size = await _prepare(place, topic, jobs)
            sizes.append(size)
            began = monotonic()
            service = await house.start(
                "feedback",
                CARILLON_FEEDBACK_TOPICS=f"^{topic.name}$",
                CARILLON_FEEDBACK_GROUP=house.app,
                CARILLON_FEEDBACK_FLUSH_SECONDS=str(_FLUSH_SECONDS),
            )
            meter = Meter({"feedback": service.pid})
            rates.append(_steady(await _flushes(house, place.devices)))
            totals.append(monotonic() - began)
            cpu.append(meter.used()["feedback"])
            peaks.append(memory(service.pid).peak)
            await _check(house, expected)
            await topic.delete()
    figures = [
        Figure("folded, from one flush to another", rates, "records/s", Target(100_000)),
        Figure("from the start of the process to the last flush", totals, "s"),
        Figure("CPU of the service", cpu, "s"),
        Figure("its peak memory", peaks, "MB", Target(200, at_most=True)),
    ]
    note = (
        f"{place.devices:,} records of {sum(sizes) / len(sizes):.0f} bytes on the average, {_JOBS} jobs, "
        f"{PARTITIONS} partitions, a flush each {_FLUSH_SECONDS:g} s. Checked: the counts of every job and outcome "
        "are exact."
    )
    return [Measured("feedback", figures, [note])]


async def _job(house: House) -> str:
    job = house.job(status=JobStatus.PAUSED)
    await house.with_.store.jobs.add(job)
    return job.id


async def _prepare(place: Place, topic: Topic, jobs: Sequence[str]) -> tuple[Counter[tuple[str, str]], float]:
    """Put the records on the topic; the counts that they ought to make, and their mean size."""
    rand = random.Random(1)
    kinds = [(job, outcome) for job in jobs for outcome in _OUTCOMES]
    records = [(kind, _record(*kind)) for kind in kinds for _ in range(20)]
    expected: Counter[tuple[str, str]] = Counter()
    producer = AIOKafkaProducer(
        bootstrap_servers=place.servers.kafka_servers, acks="all", max_batch_size=512 * 1024, max_request_size=2**20
    )
    await producer.start()
    try:
        sent, turn, size = 0, 0, 0
        while sent < place.devices:
            builder = producer.create_batch()
            while sent < place.devices:
                kind, value = rand.choice(records)
                if builder.append(timestamp=None, key=None, value=value) is None:
                    break
                expected[kind] += 1
                size += len(value)
                sent += 1
            await (await producer.send_batch(builder, topic.name, partition=turn % PARTITIONS))
            turn += 1
    finally:
        await producer.stop()
    return expected, size / place.devices


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


async def _counts(house: House) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    async for job_id in house.with_.store.jobs.open_ids():
        job = await house.with_.store.jobs.get(job_id)
        for outcome, count in (job.feedbacks if job else {}).items():
            counts[job_id, outcome] = count
    return counts


async def _check(house: House, expected: Counter[tuple[str, str]]) -> None:
    counts = await _counts(house)
    if counts != expected:
        raise Wrong(f"counted {sum(counts.values()):,} of {sum(expected.values()):,}, or under other names")
