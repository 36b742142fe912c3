"""SIGKILL at every line of the sender and the planner where a death matters."""

import signal

import pytest

from shared.jobs.rules.jobs import PlanJob
from tests.e2e.house import House
from tests.tiers import and_rarely

pytestmark = [pytest.mark.chaos, pytest.mark.native]

SENDER = (
    "send.before_take",
    "send.after_take",
    "send.in_transaction",
    "send.after_commit",
    "send.after_settle",
    "send.before_feed",
    "send.before_ack",
    "feed.after_queue",
)


@pytest.mark.parametrize("point", [*SENDER[:2], pytest.param(SENDER[2], marks=pytest.mark.proof), *SENDER[3:]])
async def test_a_sender_dies(house: House, point: str) -> None:
    await house.devices(9_000)
    doomed = await house.start("worker", fault=f"{point}@3=kill")
    job_id = await house.post()
    assert await doomed.gone() == -signal.SIGKILL
    await house.start("worker")
    await house.start("scheduler")
    await house.exactly_once(job_id, 9_000)


@pytest.mark.proof
@pytest.mark.parametrize("point", and_rarely("plan.after_page@2", rarely=["plan.before_end", "finish.after_totals"]))
async def test_a_planner_or_a_finisher_dies(house: House, point: str) -> None:
    await house.devices(20_000)
    doomed = await house.start("worker", fault=f"{point}=kill")
    job_id = await house.post()
    assert await doomed.gone() == -signal.SIGKILL
    await house.start("worker")
    await house.start("scheduler")
    await house.exactly_once(job_id, 20_000)


async def test_two_planners_at_once(house: House) -> None:
    await house.devices(45_000)
    for _ in range(2):
        await house.start("worker", fault="plan.after_page@1=delay:0.3,plan.after_page@3=delay:0.3")
    job_id = await house.post()
    for _ in range(3):
        await house.feed.publish(PlanJob(job_id))
    await house.exactly_once(job_id, 45_000)


@pytest.mark.slow  # the storm of processes does so, too
async def test_workers_die_again_and_again(house: House) -> None:
    """Each worker is killed somewhere else, until one is let live."""
    await house.devices(120_000)
    await house.start("scheduler")
    job_id = await house.post()
    for number, point in enumerate(SENDER):
        doomed = await house.start("worker", fault=f"{point}@{1 + number % 4}=kill")
        assert await doomed.gone() == -signal.SIGKILL
    await house.start("worker")
    await house.exactly_once(job_id, 120_000)
