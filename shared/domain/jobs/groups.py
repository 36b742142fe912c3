"""Groups: the jobs of one localized push, one for each time zone.

A group is stored before its jobs, with all that they are made from. So whoever dies in between leaves something that
can be completed: a zone's job has an id that follows from group and zone, and so is made once however often it is made.
"""

import uuid
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.audience.zones import ZoneRules, offsets, starts
from shared.domain.idempotency import Idempotency
from shared.domain.jobs.events import SEND, Event, EventState
from shared.domain.jobs.jobs import Job, JobStatus, job_key


class ZoneJobStart(Struct, frozen=True):
    """When a zone's job starts, in ns since the epoch."""

    zone: str
    starts_at: int


class Group(Struct, frozen=True, kw_only=True):
    """A localized push: `job` is what was asked for, `zones` what it becomes. `made` says that all jobs are stored."""

    id: str
    app_id: str
    job: Job
    zones: tuple[ZoneJobStart, ...]
    created_at: int
    idempotency: Idempotency | None = None
    made: bool = False

    @property
    def job_ids(self) -> tuple[str, ...]:
        """The ids of its jobs, in the order of their zones."""
        return tuple(zone_job_id(self, start.zone) for start in self.zones)

    @property
    def job_keys(self) -> tuple[str, ...]:
        """The keys of its jobs, in the order of their zones."""
        return tuple(job_key(job_id, self.job.incarnation) for job_id in self.job_ids)


def make_group(job: Job, zones: Sequence[tuple[str, int]], *, published_sign: bool = False) -> Group:
    """The group that a localized job asks for, with these zones and their starts; the job's own id becomes that of the
    group. Its devices will be divided by the offsets that this process knows, whichever process divides them."""
    delayed = [zone for zone, start in zones if start != starts(job.starts_at, zone, published_sign=published_sign)]
    asked = replace(job, idempotency=None, offsets=offsets(), wall_clock=job.starts_at, next_day=tuple(delayed))
    return Group(
        id=job.group_id,
        app_id=job.app_id,
        job=asked,
        zones=tuple(ZoneJobStart(zone, start) for zone, start in zones),
        created_at=job.created_at,
        idempotency=job.idempotency,
    )


def zone_rules(job: Job) -> ZoneRules:
    """The rules by which the job's group divides devices; those that it would have before there is a group."""
    return ZoneRules(job.offsets or offsets(), job.wall_clock or job.starts_at, job.next_day)


def zone_jobs(group: Group) -> list[Job]:
    """The jobs of a group. They wait for their start, and those whose start has passed begin at once. The last one
    speaks for all of them: it brings the mail, counts the users of a file whom nobody knows, and tells which zones
    start too late to get anything."""
    last = group.zones[-1]
    late = late_zones(group)
    return [
        replace(
            group.job,
            id=zone_job_id(group, start.zone),
            zone=start.zone,
            starts_at=start.starts_at,
            status=JobStatus.SCHEDULED,
            mails=group.job.mails if start is last else (),
            events=(_lateness(late, group.created_at),) if late and start is last else (),
            counts_unknown=start is last,
        )
        for start in group.zones
    ]


def late_zones(group: Group) -> list[str]:
    """The zones whose start lies behind the end of the job."""
    return [start.zone for start in group.zones if 0 < group.job.expires_at <= start.starts_at]


def _lateness(zones: Sequence[str], at: int) -> Event:
    message = f"expiresAt lies before the start of the zones {', '.join(zones)}: they get nothing"
    return Event(SEND, EventState.FAIL, message, at)


def zone_job_id(group: Group, zone: str) -> str:
    """The one id that the job of this zone can have. Nobody can know it, and take it, before the group is made."""
    incarnation = group.job.incarnation
    return str(uuid.uuid5(uuid.UUID(group.id), f"{incarnation}/{zone}" if incarnation else zone))
