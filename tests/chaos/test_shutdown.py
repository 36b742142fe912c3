"""SIGTERM at unlucky moments: the process ends soon and cleanly, and somebody else has all that it leaves behind."""

import asyncio
import signal

import pytest

from tests.chaos.test_feedback import Receiver
from tests.e2e.house import House, Process
from tests.tiers import and_rarely

pytestmark = [pytest.mark.chaos, pytest.mark.native]

# Whoever does not end by itself is not cut off before the test fails.
PATIENT = {"CARILLON_SHUTDOWN_GRACE_SECONDS": "3600"}
PAGES = 50
SLOW_PLAN = ",".join(f"plan.after_page@{n}=delay:0.5" for n in range(2, PAGES))
SLOW_SEND = ",".join(f"send.after_take@{n}=delay:0.5" for n in range(1, 100))


async def drained(process: Process) -> None:
    """Ask it to end: it does so, with nothing cut off."""
    process.send(signal.SIGTERM)
    assert await process.gone() == 0, process.log


async def planned_batches(house: House, job_id: str) -> int:
    totals = await house.servers.store.batch_sums.totals([job_id])
    return totals[job_id].batches if job_id in totals else 0


@pytest.mark.parametrize("sending", and_rarely(SLOW_SEND, rarely=("",)), ids=["sends", "plans"])
async def test_a_worker_is_told_to_end_while_it_plans(house: House, sending: str) -> None:
    """It plans no further. No scheduler runs: what is left must be on the broker already."""
    await house.devices(100_000)
    faults = ",".join(part for part in (SLOW_PLAN, sending) if part)
    first = await house.start("worker", fault=faults, CARILLON_WORKER_PAGE_BATCHES="2", **PATIENT)
    job_id = await house.post()
    await first.reached("plan.after_page")
    await drained(first)
    assert 0 < await planned_batches(house, job_id) < 90
    await house.start("worker")
    await house.exactly_once(job_id, 100_000)


@pytest.mark.slow
async def test_two_workers_are_told_to_end_one_after_the_other(house: House) -> None:
    await house.devices(60_000)
    job_id = await house.post()
    for _ in range(2):
        worker = await house.start("worker", fault=SLOW_SEND, **PATIENT)
        await worker.reached("send.after_take")
        await drained(worker)
    await house.start("worker")
    await house.exactly_once(job_id, 60_000)


async def test_every_idle_process_ends_by_itself(house: House) -> None:
    await house.devices(2_000)
    own = {"CARILLON_FEEDBACK_TOPICS": f"^{house.app}-.*-feedbacks$", **PATIENT}
    processes = [
        await house.start(service, **own)
        for service in ("api", "scheduler", "worker", "feedback-answers", "feedback-bus")
    ]
    # After some work: connections and lanes are open then.
    await house.exactly_once(await house.post(), 2_000)
    for process in processes:
        await drained(process)


async def test_a_feedback_reader_is_told_to_end_in_mid_fold(house: House) -> None:
    receiver = Receiver(house)
    await receiver.jobs_to_answer()
    topic = await receiver.topic()
    await receiver.answer(topic, 2_000)
    reader = await receiver.start(fault="feedback.before_flush=delay:1", **PATIENT)
    await reader.reached("feedback.before_flush")
    answering = asyncio.create_task(receiver.answer(topic, 2_000))
    await drained(reader)
    await answering
    standing = await receiver.standing()
    assert standing > 0, "what was folded must be stored at the end"
    heir = await receiver.start(**PATIENT)
    await receiver.counted()
    await drained(heir)
    await receiver.counted()
