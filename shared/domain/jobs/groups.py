"""Groups: the jobs of one localized push, one for each time zone.

A group is stored before its jobs, with their whole content. So a crash in between leaves a group that can be completed:
the id of a zone's job follows from group and zone, so it is made once.
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
    zone: str
    starts_at: int


class Group(Struct, frozen=True, kw_only=True):
    """A localized push: `job` is the request, `zones` its parts. `made`: all jobs are stored."""

    id: str
    app_id: str
    job: Job
    zones: tuple[ZoneJobStart, ...]
    created_at: int
    idempotency: Idempotency | None = None
    made: bool = False

    @property
    def job_ids(self) -> tuple[str, ...]:
        return tuple(zone_job_id(self, start.zone) for start in self.zones)

    @property
    def job_keys(self) -> tuple[str, ...]:
        return tuple(job_key(job_id, self.job.incarnation) for job_id in self.job_ids)


def make_group(job: Job, zones: Sequence[tuple[str, int]], *, published_sign: bool = False) -> Group:
    """The group of a localized job, with these zones and their starts; the job's id becomes that of the group. The
    offsets that this process knows will divide its devices, whichever process divides them."""
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
    return ZoneRules(job.offsets or offsets(), job.wall_clock or job.starts_at, job.next_day)


def zone_jobs(group: Group) -> list[Job]:
    """The jobs of a group. They wait for their start; those with a past start begin at once. The last one represents
    them all: it has the mails, counts a file's unknown users, and reports the zones that start too late."""
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
    """The zones whose start is at or after the end of the job."""
    return [start.zone for start in group.zones if 0 < group.job.expires_at <= start.starts_at]


def _lateness(zones: Sequence[str], at: int) -> Event:
    message = f"expiresAt lies before the start of the zones {', '.join(zones)}: they get nothing"
    return Event(SEND, EventState.FAIL, message, at)


def zone_job_id(group: Group, zone: str) -> str:
    """The only possible id of this zone's job. It cannot be guessed, and taken, before the group is made."""
    incarnation = group.job.incarnation
    return str(uuid.uuid5(uuid.UUID(group.id), f"{incarnation}/{zone}" if incarnation else zone))
