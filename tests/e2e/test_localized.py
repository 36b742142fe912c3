"""Localized pushes: every user once, with the job of their zone, at the time that their clocks show."""

from typing import Any

import pytest

from shared.domain.groups import Group, grouped
from shared.domain.jobs import JobStatus
from shared.domain.zones import REST, starts, zone_starts, zones
from tests.e2e.house import House

pytestmark = pytest.mark.native

SECOND = 1_000_000_000
# A user in every zone, and some whose zone nobody knows.
SPREAD = "UPDATE {{table}} SET tz = ({zones}::text[])[1 + seq_id % {count}]"
UNREADABLE = "UPDATE {table} SET tz = CASE seq_id % 3 WHEN 0 THEN NULL WHEN 1 THEN 'CET' ELSE '' END WHERE tz = 'rest'"


async def spread(house: House, devices: int) -> None:
    """Devices in all zones, evenly."""
    await house.devices(devices)
    names = "ARRAY[" + ",".join(f"'{zone}'" for zone in zones()) + "]"
    await house.change_devices(SPREAD.format(zones=names, count=len(zones())))
    await house.change_devices(UNREADABLE)


async def a_group(house: House, *, starts_at: int | None = None, **fields: Any) -> Group:
    """A localized push whose zones have all begun, or whose starts are given."""
    now = house.with_.clock.now_ns()
    # Two days back: even a day later has passed everywhere, and begins at once.
    job = house.job(starts_at=starts_at or now - 3 * 86_400 * SECOND, localized=True, **fields)
    group, fresh = await house.with_.groups.start(
        grouped(job, zone_starts(job.starts_at, now, "", published_sign=False))
    )
    assert fresh
    return group


async def all_closed(house: House, group: Group) -> list[Any]:
    return [await house.closed(job_id) for job_id in group.job_ids]


async def test_every_user_is_sent_to_once_by_the_job_of_their_zone(house: House) -> None:
    await spread(house, 2_000)
    await house.start("scheduler")
    await house.start("worker")
    group = await a_group(house)
    jobs = await all_closed(house, group)
    assert {job.status for job in jobs} == {JobStatus.COMPLETED}
    assert {job.zone for job in jobs} == set(zones())
    per_device = await house.sent_per_device(2_000)
    assert len(per_device) == 2_000
    assert set(per_device.values()) == {1}
    by_zone = {job.zone: job.totals.sent for job in jobs}
    assert max(by_zone.values()) - min(by_zone.values()) <= 1
    assert by_zone[REST] > 0


async def test_a_file_is_cut_once_and_each_zone_sends_to_its_own(house: House) -> None:
    await spread(house, 3_000)
    await house.start("scheduler")
    await house.start("worker")
    content = b"id\n" + b"".join(b"u%d\n" % number for number in range(1, 2_501)) + b"nobody\n"
    group = await a_group(house, csv_path=await house.file(content))
    jobs = await all_closed(house, group)
    assert {job.status for job in jobs} == {JobStatus.COMPLETED}
    assert {job.plan.end for job in jobs} == {3}
    assert sum(job.totals.sent for job in jobs) == 2_500
    assert {job.zone: job.totals.unknown for job in jobs if job.totals.unknown} == {REST: 1}
    per_device = await house.sent_per_device(2_500)
    assert {int(token, 16) for token in per_device} == set(range(1, 2_501))
    assert set(per_device.values()) == {1}


async def test_zones_start_at_their_own_time_and_can_be_held_and_stopped_together(house: House) -> None:
    """The one zone whose start is near begins; all others wait, are paused, resumed and stopped."""
    await spread(house, 500)
    await house.start("scheduler")
    await house.start("worker")
    now = house.with_.clock.now_ns()
    # In the west it is that late last of all.
    soon = now + 2 * SECOND - (starts(0, "+1400", published_sign=False))
    group = await a_group(house, starts_at=soon)
    east = next(job for job in await house.with_.groups.jobs(group) if job.zone == "+1400")
    assert (await house.closed(east.id)).status is JobStatus.COMPLETED
    others = [job for job in await house.with_.groups.jobs(group) if job.id != east.id]
    assert {job.status for job in others} == {JobStatus.SCHEDULED}
    assert await house.with_.groups.pause(group) == len(others)
    assert await house.with_.groups.resume(group) == len(others)
    assert await house.with_.groups.stop(group) == len(others)
    assert await house.with_.groups.stop(group) == 0
    jobs = await all_closed(house, group)
    assert {job.status for job in jobs} == {JobStatus.COMPLETED, JobStatus.STOPPED}
