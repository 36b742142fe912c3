"""Notices: valid but probably mistaken parts of a job, found without counting its audience. Each notice has a permanent
code, and a sentence for people."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from shared.domain.audience.counts import Counted
from shared.domain.audience.zones import REST, describe_rest, starts, zones
from shared.domain.jobs.groups import zone_rules
from shared.domain.jobs.jobs import Job

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
