"""A push job from its start to Kafka, on real servers, in real processes."""

import signal

import pytest

from shared.jobs.rules.batches import SLOTS
from tests.e2e.house import House

pytestmark = pytest.mark.e2e

DEVICES = (SLOTS + 8) * 1_000 + 500  # more batches than chains


async def test_one_device(house: House) -> None:
    await house.devices(1)
    await house.start("worker")
    await house.exactly_once(await house.post(), 1)


@pytest.mark.proof
async def test_many_batches_over_two_workers(house: House) -> None:
    await house.devices(DEVICES)
    for service in ("worker", "worker", "scheduler"):
        await house.start(service)
    await house.exactly_once(await house.post(), DEVICES)


@pytest.mark.slow  # tests/chaos/test_shutdown.py has workers drain in each run
async def test_a_worker_that_is_told_to_stop_drains_and_another_goes_on(house: House) -> None:
    await house.devices(60_000)
    first = await house.start("worker", fault="send.after_take@10=delay:0.1")
    job_id = await house.post()
    await first.reached("send.after_take")
    first.send(signal.SIGTERM)
    assert await first.gone() == 0, first.log
    await house.start("worker")
    await house.start("scheduler")
    await house.exactly_once(job_id, 60_000)
