"""A localized push becomes a job for each zone; one of them speaks for all."""

import uuid
from typing import Any

import pytest
from msgspec.structs import replace

from shared.audience.rules.zones import offsets
from shared.core.ids import Idempotency
from shared.jobs.rules.events import DueMail, EventState
from shared.jobs.rules.groups import Group, late_zones, make_group, zone_job_id, zone_jobs
from shared.jobs.rules.jobs import Job, JobStatus

GROUP_ID = "1c9a2f0e-5d3b-4c58-9d53-0f6d2f1f7c11"
ZONES = [("+0100", 50), ("+0000", 60), ("rest", 60)]
MAIL = DueMail("created", 7)


def a_group(**changes: Any) -> Group:
    job = Job(
        id="asked", incarnation="x", app_id="a", app_name="a", service="apns", template_names=("like",),
        created_by="me", group_id=GROUP_ID, localized=True, created_at=7, mails=(MAIL,),
        idempotency=Idempotency("k", "d"),
    )  # fmt: skip
    return make_group(replace(job, **changes), ZONES)


def test_a_group_takes_what_makes_a_repeated_post_the_same_and_its_jobs_do_not() -> None:
    group = a_group()
    assert (group.id, group.app_id, group.created_at, group.made) == (GROUP_ID, "a", 7, False)
    assert group.idempotency == Idempotency("k", "d")
    assert all(job.idempotency is None for job in zone_jobs(group))


def test_each_zone_has_a_job_that_waits_for_its_start() -> None:
    jobs = zone_jobs(a_group())
    assert [(job.zone, job.starts_at, job.status) for job in jobs] == [
        (zone, start, JobStatus.SCHEDULED) for zone, start in ZONES
    ]
    assert {job.group_id for job in jobs} == {GROUP_ID}
    assert {job.offsets for job in jobs} == {offsets()}


def test_a_group_knows_its_jobs_before_they_are_made() -> None:
    group = a_group()
    assert group.job_ids == tuple(job.id for job in zone_jobs(group))
    assert group.job_keys == tuple(job.key for job in zone_jobs(group))


def test_the_job_of_a_zone_has_one_id_in_every_release() -> None:
    # Whoever completes a group must make the jobs that are there already, and no others.
    group = a_group()
    assert zone_job_id(group, "+0100") == str(uuid.uuid5(uuid.UUID(GROUP_ID), "x/+0100"))


def test_the_last_job_speaks_for_all() -> None:
    *others, last = zone_jobs(a_group())
    assert (last.mails, last.counts_unknown, last.events) == ((MAIL,), True, ())
    assert all((job.mails, job.counts_unknown, job.events) == ((), False, ()) for job in others)


@pytest.mark.parametrize(
    ("expires_at", "late"), [(0, []), (50, ["+0100", "+0000", "rest"]), (60, ["+0000", "rest"]), (61, [])]
)
def test_zones_that_start_when_the_job_has_expired_are_told(expires_at: int, late: list[str]) -> None:
    group = a_group(expires_at=expires_at)
    assert late_zones(group) == late
    events = [event for job in zone_jobs(group) for event in job.events]
    assert [(event.stage, event.state, event.at) for event in events] == [
        ("process_batch_worker", EventState.FAIL, 7)
    ] * bool(late)
    assert all(", ".join(late) in event.message for event in events)
