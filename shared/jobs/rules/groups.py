"""Groups, the jobs of one localized push, one for each time zone; their divisions; and notices about jobs and zones.

A group is stored before its jobs, with their whole content. So a crash in between leaves a group that can be
completed: the id of a zone's job follows from group and zone, so it is made once.

A group's division says which zone each device belongs to. It is made once, when the first of its zones starts, and
all zones use it: a device that changes its zone between two starts still belongs to exactly one. A device is
identified by its key (`seq_id`).

A division is made in steps. Each covers the next part of the audience, up to its `edge`. The devices of a zone are
cut into lists as long as a batch; the rest goes to the next step, and the last step leaves none. A step's lists are
stored first, under ids with a unique `attempt`, then the step itself. If several workers make one step, the first
stored step decides which lists count. So any worker may continue a division from its last step, and no device is
ever in two lists.

Notices are valid but probably mistaken parts of a job, found without counting its audience. Each has a permanent
code, and a sentence for people.
"""

import uuid
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from shared.audience.rules.audiences import Counted, DeviceList, Source
from shared.audience.rules.zones import REST, ZoneRules, describe_rest, offsets, starts, zones
from shared.core.ids import Idempotency
from shared.jobs.rules.events import SEND, Event, EventState
from shared.jobs.rules.jobs import Job, JobStatus, job_key


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
    return str(uuid.uuid5(uuid.UUID(group.id), f"{group.job.incarnation}/{zone}"))


class Division(Struct, frozen=True, kw_only=True):
    """The basis of a division, fixed before its first step: the source, and the devices of a list."""

    id: str
    source: Source
    size: int


class Step(Struct, frozen=True, kw_only=True):
    """A valid step. The next one begins at `edge`: after this key of the table, or at this cut of the file.

    `sizes` are those of its lists, and `left` the packed remaining keys, both by zone. `unknown` counts the file's
    users without a device so far, and `rest_values` are some values of `tz` in the zone `REST`. The division is
    complete after the `last` step.
    """

    division: str
    number: int
    attempt: str
    edge: int
    sizes: dict[str, list[int]] = {}
    left: dict[str, bytes] = {}
    unknown: int = 0
    rest_values: tuple[str | None, ...] = ()
    last: bool = False

    @property
    def id(self) -> str:
        return f"{self.division}/{self.number:08d}"

    def lists(self, zone: str) -> list[tuple[DeviceList, int]]:
        sizes = self.sizes.get(zone, [])
        return [(DeviceList(f"{self.id}/{self.attempt}/{zone}/{n}"), size) for n, size in enumerate(sizes)]


NAMED = 10  # maximum names in a sentence
_ZONES = {
    "zone-skipped": "their start has passed, and they get nothing",
    "zone-next-day": "their start has passed, and they start 24 hours later",
    "zone-at-once": "their start passed more than 24 hours ago, and they start at once",
    "zone-expired": "the job expires before they start, and they get nothing",
}


class Notice(Struct, frozen=True):
    code: str
    message: str


def of_push(
    job: Job, group: Sequence[tuple[str, int]], counted: Counted | None, *, published_sign: bool, now_ns: int
) -> Iterator[Notice]:
    """Notices about a push job. With an exact count, zones without devices are left out; `group` comes from
    `zone_starts` of a localized job."""
    if not job.localized:
        return
    at, devices = dict(group), None if counted is None else counted.by_zone(zone_rules(job))
    named = devices if devices is not None and counted is not None and counted.exact else zones()
    unmoved = {zone for zone in at if at[zone] == starts(job.starts_at, zone, published_sign=published_sign)}
    chosen = {
        "zone-skipped": [zone for zone in zones() if zone not in at],
        "zone-next-day": [zone for zone in at if at[zone] > now_ns and zone not in unmoved],
        "zone-at-once": [zone for zone in at if at[zone] <= now_ns],
        "zone-expired": [zone for zone in at if 0 < job.expires_at <= at[zone]],
    }
    if counted is not None and devices is not None and devices.get(REST):
        yield Notice("zone-unknown", describe_rest(devices[REST], counted.rest_values()))
    for code, those in chosen.items():
        if found := [zone for zone in those if zone in named]:
            number = (
                "" if devices is None else f" ({count_devices(sum(devices.get(zone, 0) for zone in found))} counted)"
            )
            yield Notice(code, f"{list_first(found)}{number}: {_ZONES[code]}.")


def count_devices(number: int) -> str:
    return f"{number:,} device{'' if number == 1 else 's'}"


def list_first(texts: Sequence[str]) -> str:
    more = len(texts) - NAMED
    return ", ".join(texts[:NAMED]) + (f" and {more} more" if more > 0 else "")
