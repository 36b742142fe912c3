"""A worker dies in the middle of a job over a file with a control group: each user still gets it once, or is held out
once, and the file of those held out is whole."""

import asyncio

import pytest

from shared.jobs.rules.jobs import JobStatus
from shared.push.rules.choices import held_out
from tests.e2e.house import House
from tests.tiers import and_rarely

pytestmark = [pytest.mark.chaos, pytest.mark.native]

USERS = 6_000
SHARE = 0.1


def a_file() -> bytes:
    """Every user, and half of them once more at the end."""
    numbers = [*range(1, USERS + 1), *range(1, USERS // 2 + 1)]
    return b"id\n" + b"".join(b"u%d\n" % number for number in numbers)


@pytest.mark.parametrize(
    "point",
    and_rarely(
        pytest.param("plan.after_page", marks=pytest.mark.proof),
        "finish.after_file",
        rarely=(
            "plan.before_end",
            "send.after_take@3",
            "send.in_transaction@3",
            "send.after_commit@3",
            "finish.after_totals",
        ),
    ),
)
async def test_a_worker_dies(house: House, point: str) -> None:
    await house.devices(USERS + 500)
    path = await house.file(a_file())
    await house.start("scheduler")
    doomed = await house.start("worker", fault=f"{point}=kill")
    job_id = await house.post(csv_path=path, control_group=SHARE)
    assert await doomed.gone() < 0
    await asyncio.gather(*(house.start("worker") for _ in range(2)))
    job = await house.closed(job_id)
    assert job.status is JobStatus.COMPLETED
    totals = job.totals
    assert totals is not None
    everybody = {f"u{number}" for number in range(1, USERS + 1)}
    spared = held_out(everybody, job_id, SHARE, by_rank=False)
    assert (totals.batches, totals.planned, totals.held_out) == (9, USERS, len(spared))
    assert (totals.sent, totals.failed, totals.skipped, totals.unknown) == (USERS - len(spared), 0, 0, 0)
    records = await house.records(totals.sent)
    sent = [record["metadata"]["userId"] for record in records]
    assert len(sent) == len(set(sent)) == totals.sent
    lines = (await house.content(job.control_group_csv_path)).decode().splitlines()
    assert len(lines) == len(spared) + 1
    assert set(lines[1:]) == spared
    assert set(sent) == everybody - spared


async def test_two_planners_cut_one_file(house: House) -> None:
    """Both read it, both find the same, and nobody is there twice."""
    await house.devices(USERS)
    path = await house.file(a_file())
    await house.start("worker", fault="plan.after_page@1=delay:3")
    await house.start("worker", fault="plan.after_page@1=delay:2")
    job_id = await house.post(csv_path=path)
    await house.feed.plan(job_id)
    await house.exactly_once(job_id, USERS)
