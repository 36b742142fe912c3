"""A batch that holds more than fits, or that Kafka cannot take in time, goes out in parts: each device once, whatever
dies between two of them."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.jobs.rules.batches import Batch, Totals
from shared.jobs.rules.jobs import JobStatus
from tests.e2e.house import House, Process
from tests.stack.kafka import throttle
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

DEVICES = 8_000
FOUND = 8  # when the plan is cut


async def grown(house: House) -> str:
    """A job whose one batch was planned for a few devices, and that is held while its filter comes to keep all."""
    await house.devices(DEVICES)
    await house.change_devices(f"UPDATE {{table}} SET region = 'XX' WHERE seq_id % {DEVICES // FOUND} = 0")
    job_id = await house.post(filters={"region": "XX"})
    assert await house.jobs.pause(job_id)
    planner = await house.start("worker")

    async def is_planned() -> bool:
        standing = await house.servers.store.jobs.get_standing(job_id)
        return standing is not None and standing.end is not None

    await until(is_planned, "the plan")
    await planner.end()
    await house.change_devices("UPDATE {table} SET region = 'XX'")
    return job_id


async def the_batch(house: House, job_id: str) -> Batch:
    batch = await house.servers.store.batches.get(job_id, 0)
    assert batch is not None
    return batch


async def send_three_parts(house: House, job_id: str) -> Process:
    """Let three parts of the batch go out; the worker stops before the fourth."""
    worker = await house.start("worker", fault="send.after_settle@3=stop")
    await house.start("scheduler")
    assert await house.jobs.resume(job_id)
    await worker.reached("send.after_settle")
    return worker


async def one_record_each(house: House, job_id: str) -> None:
    job = await house.closed(job_id)
    assert job.status is JobStatus.COMPLETED, job
    assert job.totals == Totals(batches=1, settled=1, planned=DEVICES, sent=DEVICES)
    per_device = await house.sent_per_device(DEVICES)
    assert len(per_device) == DEVICES
    assert set(per_device.values()) == {1}


async def test_a_batch_that_has_grown_goes_out_in_parts(house: House) -> None:
    job_id = await grown(house)
    await house.start("worker")
    await house.start("scheduler")
    assert await house.jobs.resume(job_id)
    await one_record_each(house, job_id)
    batch = await the_batch(house, job_id)
    assert batch.parts >= 7  # and the last one settles it


@pytest.mark.parametrize(
    "point",
    and_rarely(
        "send.in_transaction", "send.after_commit", rarely=("send.before_take", "send.after_take", "send.after_settle")
    ),
)
async def test_a_sender_dies_in_the_middle_of_a_batch(house: House, point: str) -> None:
    job_id = await grown(house)
    doomed = await house.start("worker", fault=f"{point}@4=kill")
    await house.start("scheduler")
    assert await house.jobs.resume(job_id)
    assert await doomed.gone() == -signal.SIGKILL
    await house.start("worker")
    await one_record_each(house, job_id)


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("point", ["send.after_commit", "send.after_take", "send.in_transaction"])
async def test_a_sender_sleeps_in_the_middle_of_a_batch_and_wakes_up_late(house: House, point: str) -> None:
    job_id = await grown(house)
    sleeper = await house.start("worker", fault=f"{point}@4=stop")
    await house.start("scheduler")
    assert await house.jobs.resume(job_id)
    await sleeper.reached(point)
    await house.start("worker")
    await one_record_each(house, job_id)
    sleeper.send(signal.SIGCONT)
    await sleeper.ready()
    await asyncio.sleep(1)  # for whatever the sleeper still tries
    await one_record_each(house, job_id)


async def test_a_job_is_held_between_two_parts(house: House) -> None:
    job_id = await grown(house)
    worker = await send_three_parts(house, job_id)
    assert await house.jobs.pause(job_id)
    worker.send(signal.SIGCONT)

    async def is_held() -> bool:
        return (await the_batch(house, job_id)).status == "planned"

    await until(is_held, "the rest to be held")
    held = await the_batch(house, job_id)
    assert (held.parts, held.receipt.sent) == (3, 3_000)
    assert await house.jobs.resume(job_id)
    await one_record_each(house, job_id)


async def test_what_is_left_of_a_stopped_job_is_dropped(house: House) -> None:
    job_id = await grown(house)
    worker = await send_three_parts(house, job_id)
    assert await house.jobs.stop(job_id)
    worker.send(signal.SIGCONT)
    job = await house.closed(job_id)
    assert job.totals is not None
    assert (job.status, job.totals.sent) == (JobStatus.STOPPED, 3_000)
    assert len(await house.sent_per_device(3_000)) == 3_000


@asynccontextmanager
async def slow_brokers(house: House, bytes_a_second: int) -> AsyncIterator[None]:
    """A quota for all producers, as an operator sets it."""
    servers = house.environment["CARILLON_STREAM_URL"].removeprefix("kafka://")
    await asyncio.to_thread(throttle, servers, bytes_a_second)
    try:
        yield
    finally:
        await asyncio.to_thread(throttle, servers, None)


@pytest.mark.kills_servers  # it slows one down
@pytest.mark.usefixtures("hasty")
async def test_what_kafka_cannot_take_in_time_goes_out_in_smaller_parts(house: House) -> None:
    """A batch has 1.4 MB, and the brokers take 200 kB a second where two seconds are allowed for one."""
    devices = 4_000
    await house.devices(devices)
    await house.template("long", "en", {"alert": "x" * 1_000})
    await house.start("worker", CARILLON_STREAM_PUSH_TOPIC_PARTITIONS="2")
    await house.start("scheduler")
    async with slow_brokers(house, 200_000):
        job_id = await house.post(template_names=("long",))
        await house.exactly_once(job_id, devices)
    batches = [await house.servers.store.batches.get(job_id, ordinal) for ordinal in range(4)]
    assert any(batch is not None and batch.parts for batch in batches), batches
