"""SIGSTOP at every line of the sender where it matters: the worker wakes up after another one has taken its batch."""

import signal

import pytest

from shared.jobs.rules.jobs import JobStatus
from tests.chaos.test_killed import SENDER
from tests.e2e.house import House
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native, pytest.mark.usefixtures("hasty")]


_OTHERS = tuple(
    point for point in SENDER if point not in {"send.after_take", "send.in_transaction", "send.after_commit"}
)


@pytest.mark.parametrize(
    "point", and_rarely("send.in_transaction", "send.after_commit", rarely=("send.after_take", *_OTHERS))
)
async def test_a_sleeper_wakes_up_too_late(house: House, point: str) -> None:
    await house.devices(8_000)
    sleeper = await house.start("worker", fault=f"{point}@3=stop")
    job_id = await house.post()
    await sleeper.reached(point)
    await house.start("worker")
    await house.start("scheduler")
    await house.closed(job_id)
    sleeper.send(signal.SIGCONT)
    sleeper.send(signal.SIGTERM)
    # Its end means that it has done whatever it still wanted to do.
    assert await sleeper.gone() == 0, house.logs()
    await house.exactly_once(job_id, 8_000)


@pytest.mark.parametrize("point", and_rarely("send.in_transaction", rarely=("send.after_take", "send.after_commit")))
async def test_a_job_is_paused_while_a_sleeper_owns_a_batch(house: House, point: str) -> None:
    await house.devices(8_000)
    sleeper = await house.start("worker", fault=f"{point}=stop")
    job_id = await house.post()
    await sleeper.reached(point)
    assert await house.jobs.pause(job_id)
    await house.start("worker")
    await house.start("scheduler")
    await until(lambda: nobody_owns(house, job_id), "the batch to be recovered")
    sleeper.send(signal.SIGCONT)
    assert await house.jobs.resume(job_id)
    await house.exactly_once(job_id, 8_000)


@pytest.mark.parametrize("point", and_rarely("send.after_take", rarely=("send.in_transaction", "send.after_commit")))
async def test_a_job_is_stopped_while_a_sleeper_owns_a_batch(house: House, point: str) -> None:
    await house.devices(8_000)
    sleeper = await house.start("worker", fault=f"{point}=stop")
    job_id = await house.post()
    await sleeper.reached(point)
    assert await house.jobs.stop(job_id)
    await house.start("worker")
    await house.start("scheduler")
    job = await house.closed(job_id)
    sleeper.send(signal.SIGCONT)
    sleeper.send(signal.SIGTERM)
    assert await sleeper.gone() == 0, house.logs()
    assert job.status is JobStatus.STOPPED
    assert job.totals is not None
    sent = await house.sent_per_device(job.totals.sent)
    assert sent.total() == job.totals.sent
    assert set(sent.values()) <= {1}


async def nobody_owns(house: House, job_id: str) -> bool:
    heads = await house.servers.store.batches.heads(job_id)
    batches = [await house.servers.store.batches.get(job_id, head.ordinal) for head in heads]
    return all(batch is not None and not batch.owner for batch in batches)
