"""A worker dies while it divides a localized push among its zones, and devices move, go and come meanwhile: every
device that stays has one record, and none has two."""

import asyncio
import signal
from collections import Counter

import pytest

from shared.jobs.rules.groups import Group, make_group
from shared.jobs.rules.jobs import JobStatus
from tests.e2e.house import House
from tests.tiers import and_rarely

pytestmark = [pytest.mark.chaos, pytest.mark.native]

ZONES = ("-0300", "+0100", "rest")
DEVICES = 6_000
IN_STEPS = {"CARILLON_WORKER_DIVIDE_ROWS": "1000", "CARILLON_WORKER_BATCH_SIZE": "1000"}
DAY_NS = 86_400 * 10**9
# Devices move to the next of four zones, of which two are the rest's; of every tenth, a third goes; others come.
MOVE = (
    "UPDATE {table} SET tz = CASE (seq_id + {round}) % 4 WHEN 0 THEN '-0300' WHEN 1 THEN '+0100' WHEN 2 THEN 'CET' END"
)
LEAVE = "DELETE FROM {table} WHERE seq_id % 10 = 0 AND seq_id / 10 % 3 = {round}"
COME = (
    "INSERT INTO {table} SELECT n, 'u' || n, lpad(to_hex(n), 64, '0'), 'en', 'BR', '+0100' "
    "FROM generate_series({first}, {first} + 99) n"
)
STAYING = {number for number in range(1, DEVICES + 1) if number % 10}


async def change(house: House, round_: int, *statements: str) -> None:
    first = DEVICES + 1 + 100 * round_
    for statement in statements or (MOVE, LEAVE, COME):
        await house.change_devices(statement.replace("{round}", str(round_)).replace("{first}", str(first)))


async def a_group(house: House, *, from_file: bool) -> Group:
    """Three zones, none of which starts by itself."""
    content = b"id\n" + b"".join(b"u%d\n" % number for number in range(1, DEVICES + 1))
    path = await house.file(content) if from_file else ""
    start = house.servers.clock.now_ns() + DAY_NS
    job = house.job(starts_at=start, localized=True, csv_path=path)
    return (await house.groups.start(make_group(job, [(zone, start) for zone in ZONES])))[0]


async def check(house: House, group: Group) -> None:
    """One record for each device that stayed, at most one for those that went, and none for those that came."""
    jobs = [await house.closed(job_id) for job_id in group.job_ids]
    assert {job.status for job in jobs} == {JobStatus.COMPLETED}, house.logs()
    totals = [job.totals for job in jobs if job.totals is not None]
    sent, skipped = sum(each.sent for each in totals), sum(each.skipped for each in totals)
    assert sum(each.planned for each in totals) == sent + skipped
    per_device = Counter({int(token, 16): count for token, count in (await house.sent_per_device(sent)).items()})
    assert sum(per_device.values()) == sent
    assert set(per_device.values()) == {1}
    assert STAYING <= per_device.keys() <= set(range(1, DEVICES + 1))
    steps = await house.servers.store.divisions.steps(jobs[0].file_plan_id)
    assert sum(size for step in steps for sizes in step.sizes.values() for size in sizes) == sent + skipped


@pytest.mark.parametrize("from_file", [pytest.param(False, marks=pytest.mark.slow), True], ids=["table", "file"])
@pytest.mark.parametrize(
    "point", and_rarely("divide.after_lists@2", rarely=("divide.after_step", "divide.after_lists", "plan.after_page"))
)
async def test_a_planner_dies(house: House, point: str, from_file: bool) -> None:
    await house.devices(DEVICES)
    await change(house, 2, MOVE)
    doomed = await house.start("worker", fault=f"{point}=kill", **IN_STEPS)
    group = await a_group(house, from_file=from_file)
    await house.jobs.begin(group.job_ids[0])
    assert await doomed.gone() == -signal.SIGKILL
    await change(house, 0)
    await asyncio.gather(house.start("scheduler"), *(house.start("worker", **IN_STEPS) for _ in range(2)))
    await house.jobs.begin(group.job_ids[1])
    await house.closed(group.job_ids[1])
    await change(house, 1)
    await house.jobs.begin(group.job_ids[2])
    await check(house, group)


@pytest.mark.slow
async def test_a_planner_that_was_frozen_goes_on_with_what_another_one_did(house: House) -> None:
    """It wakes up with the lists of a step that was made anew without it, when devices had moved."""
    await house.devices(DEVICES)
    await change(house, 2, MOVE)
    frozen = await house.start("worker", fault="divide.after_lists@2=stop", **IN_STEPS)
    group = await a_group(house, from_file=False)
    await house.jobs.begin(group.job_ids[0])
    await frozen.reached("divide.after_lists")
    await change(house, 0)
    await asyncio.gather(house.start("scheduler"), house.start("worker", **IN_STEPS))
    for job_id in group.job_ids[1:]:
        await house.jobs.begin(job_id)
    await house.closed(group.job_ids[2])
    await change(house, 1)
    frozen.send(signal.SIGCONT)
    await check(house, group)
