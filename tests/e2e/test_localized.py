"""Localized pushes: every user once, with the job of their zone, at the time that their clocks show."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.audience.rules.zones import REST, starts, zone_starts, zones
from shared.jobs.rules.groups import Group, make_group
from shared.jobs.rules.jobs import JobStatus
from tests.e2e.house import House
from tests.tiers import and_rarely

pytestmark = [pytest.mark.e2e, pytest.mark.native]

SECOND = 1_000_000_000
# A user in every zone, and some whose zone nobody knows.
SPREAD = "UPDATE {{table}} SET tz = ({zones}::text[])[1 + seq_id % {count}]"
UNREADABLE = "UPDATE {table} SET tz = CASE seq_id % 3 WHEN 0 THEN NULL WHEN 1 THEN 'CEST' ELSE '' END WHERE tz = 'rest'"


async def spread(house: House, devices: int) -> None:
    """Devices in all zones, evenly."""
    await house.devices(devices)
    names = "ARRAY[" + ",".join(f"'{zone}'" for zone in zones()) + "]"
    await house.change_devices(SPREAD.format(zones=names, count=len(zones())))
    await house.change_devices(UNREADABLE)


async def a_group(house: House, *, starts_at: int | None = None, **fields: Any) -> Group:
    """A localized push whose zones have all begun, or whose starts are given."""
    now = house.servers.clock.now_ns()
    # Two days back: even a day later has passed everywhere, and begins at once.
    job = house.job(starts_at=starts_at or now - 3 * 86_400 * SECOND, localized=True, **fields)
    made = make_group(job, zone_starts(job.starts_at, now, "", published_sign=False))
    group, fresh = await house.groups.start(made)
    assert fresh
    return group


async def all_closed(house: House, group: Group) -> list[Any]:
    return [await house.closed(job_id) for job_id in group.job_ids]


@pytest.mark.proof
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


@pytest.mark.parametrize("from_file", and_rarely(False, rarely=(True,)), ids=["table", "file"])
async def test_each_device_gets_one_record_with_the_zone_that_its_text_means(house: House, from_file: bool) -> None:
    means = {
        "+1215": "+1200", "-0345": "-0400", "+12:15": "+1200", "+12": "+1200", "UTC+12": "+1200", "GMT+5:30": "+0530",
        "Z": "+0000", "utc": "+0000", "Asia/Tokyo": "+0900", "america/new_york": "-0500", "Asia/Kolkata": "+0530",
        "Europe/Paris": "+0100", "\u221205:00": "-0500", " +0300 ": "+0300", "-1300": "-1200", "+1430": "+1400",
        "+25:99": REST, "CEST": REST, "": REST, " ": REST, "x" * 5_000: REST,
    }  # fmt: skip
    texts = [*means, None]
    await house.devices(2 * len(texts))
    named = ", ".join("NULL" if text is None else f"'{text}'" for text in texts)
    await house.change_devices(f"UPDATE {{table}} SET tz = (ARRAY[{named}]::text[])[1 + seq_id % {len(texts)}]")
    await house.start("scheduler")
    await house.start("worker")
    content = b"id\n" + b"".join(b"u%d \n" % number for number in range(1, 2 * len(texts) + 1))
    winter = int(datetime(2023, 1, 15, 12, tzinfo=UTC).timestamp()) * SECOND
    group = await a_group(house, starts_at=winter, csv_path=await house.file(content) if from_file else "")
    jobs = await all_closed(house, group)
    expected = Counter(means.get(text, REST) if text is not None else REST for text in texts)
    assert {job.zone: job.totals.sent for job in jobs if job.totals.sent} == {
        zone: 2 * number for zone, number in expected.items()
    }
    assert set((await house.sent_per_device(2 * len(texts))).values()) == {1}
    [told] = [event.message for event in jobs[-1].events if REST in event.message]
    assert told.startswith(f"{2 * expected[REST]} devices are in the zone rest")


@pytest.mark.slow
async def test_a_file_is_cut_once_and_each_zone_sends_to_its_own(house: House) -> None:
    await spread(house, 3_000)
    await house.start("scheduler")
    await house.start("worker")
    content = b"id\n" + b"".join(b"u%d\n" % number for number in range(1, 2_501)) + b"nobody\n"
    group = await a_group(house, csv_path=await house.file(content))
    jobs = await all_closed(house, group)
    assert {job.status for job in jobs} == {JobStatus.COMPLETED}
    assert {job.plan.end for job in jobs} == {1}
    assert all(job.totals.planned == job.totals.sent for job in jobs)
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
    now = house.servers.clock.now_ns()
    # In the west it is that late last of all.
    soon = now + 2 * SECOND - (starts(0, "+1400", published_sign=False))
    group = await a_group(house, starts_at=soon)
    east = next(job for job in await house.groups.jobs(group) if job.zone == "+1400")
    assert (await house.closed(east.id)).status is JobStatus.COMPLETED
    others = [job for job in await house.groups.jobs(group) if job.id != east.id]
    assert {job.status for job in others} == {JobStatus.SCHEDULED}
    assert await house.groups.pause(group) == len(others)
    assert await house.groups.resume(group) == len(others)
    assert await house.groups.stop(group) == len(others)
    assert await house.groups.stop(group) == 0
    jobs = await all_closed(house, group)
    assert {job.status for job in jobs} == {JobStatus.COMPLETED, JobStatus.STOPPED}


@pytest.mark.parametrize("from_file", and_rarely(False, rarely=(True,)), ids=["table", "file"])
async def test_who_changes_zone_between_two_starts_gets_one_record(house: House, from_file: bool) -> None:
    """In the autumn devices of +0200 register again as +0100, in the spring the other way round; others go, others come
    new. Who was there when the first zone started is sent to once, by the zone of then."""
    await house.devices(100)
    await house.change_devices("UPDATE {table} SET tz = CASE WHEN seq_id <= 50 THEN '+0200' ELSE '+0100' END")
    await house.start("worker")
    now = house.servers.clock.now_ns()
    content = b"id\n" + b"".join(b"u%d\n" % number for number in range(1, 111))
    path = await house.file(content) if from_file else ""
    job = house.job(starts_at=now + 2 * 3600 * SECOND, localized=True, csv_path=path)
    day = 86_400 * SECOND
    group, _ = await house.groups.start(make_group(job, [("+0200", now + day), ("+0100", now + 2 * day)]))
    early, late = group.job_ids
    await house.jobs.begin(early)
    totals = (await house.closed(early)).totals
    assert totals is not None
    assert totals.sent == 50
    await house.change_devices("UPDATE {table} SET tz = '+0100' WHERE seq_id <= 10")
    await house.change_devices("UPDATE {table} SET tz = '+0200' WHERE seq_id > 90")
    await house.change_devices("DELETE FROM {table} WHERE seq_id BETWEEN 51 AND 55")
    await house.change_devices(
        "INSERT INTO {table} SELECT n, 'u' || n, lpad(to_hex(n), 64, '0'), 'en', 'BR', '+0100' "
        "FROM generate_series(101, 110) n"
    )
    await house.jobs.begin(late)
    totals = (await house.closed(late)).totals
    assert totals is not None
    assert (totals.planned, totals.sent, totals.skipped) == (50, 45, 5)
    assert totals.unknown == (10 if from_file else 0)
    per_device = await house.sent_per_device(95)
    assert {int(token, 16) for token in per_device} == {*range(1, 51), *range(56, 101)}
    assert set(per_device.values()) == {1}


@pytest.mark.slow  # of a job that is not localized, tests/e2e/test_csv.py sees it in each run
async def test_a_file_in_which_nobody_is_known_stops_the_job_of_the_last_zone(house: House) -> None:
    """It counts them, and counts them once; no zone has a batch."""
    await spread(house, 100)
    await house.start("scheduler")
    await house.start("worker")
    group = await a_group(house, csv_path=await house.file(b"id\nnobody\nnoone\nnobody\n"))
    jobs = await all_closed(house, group)
    assert [job.status for job in jobs] == [JobStatus.COMPLETED] * (len(jobs) - 1) + [JobStatus.STOPPED]
    assert jobs[-1].failure == "none of the 2 users in the file has a device"
    assert [job.totals.unknown for job in jobs] == [0] * (len(jobs) - 1) + [2]
    assert {job.totals.batches for job in jobs} == {0}
