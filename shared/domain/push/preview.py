"""A preview of a job: its recipients and its records, without any trace.

Samples have made-up recipients, so that no device's token and no user's id leaves the push database. Their token and id
are as long as the longest counted ones, so that a record has the size of the largest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.audience.counts import Counted
from shared.domain.audience.devices import Devices
from shared.domain.jobs.filling import Unrenderable, filled_bytes
from shared.domain.jobs.jobs import Job, Plan
from shared.domain.jobs.templates import Template, find_locale, places_by_locale
from shared.domain.push.records import SERVICES, RecordRules
from shared.domain.push.rendering import DEFAULT_LOCALE, Renderer

SHOWN_BYTES = 64 * 1024
SHOWN_SAMPLES = 20

_UNLIMITED = 2**62


class Use(Struct, frozen=True):
    """A template that some device can get, and the number of counted devices that would get it if it had the only
    name."""

    template: Template
    devices: int


class Sample(Struct, frozen=True, kw_only=True):
    """One template's record for a made-up recipient, or its `failure` (a key of a job's `reasons`). Only the first
    `SHOWN_SAMPLES` of a job have a record, and only those of at most `SHOWN_BYTES`; the others have a size, calculated
    from the lengths of their parts."""

    template_name: str
    locale: str
    devices: int
    record: str = ""
    size: int = 0
    failure: str = ""


def uses(job: Job, locales: Mapping[str | None, int]) -> list[Use]:
    """The templates that the devices of a draft can get, the one with most counted devices first."""
    templates = job.plan.templates
    by_name = places_by_locale(templates)
    found = Counter({place: 0 for own in by_name.values() for place in own.values()})
    for name in dict.fromkeys(job.template_names):
        own = by_name.get(name, {})
        for locale, devices in locales.items():
            place = own.get(find_locale(locale or "", own) or DEFAULT_LOCALE)
            if place is not None:
                found[place] += devices
    return [Use(templates[place], devices) for place, devices in found.most_common()]


def samples(job: Job, used: Iterable[Use], counted: Counted, rules: RecordRules, now: datetime) -> list[Sample]:
    """The record of each template, of any size, as sent at `now`."""
    return [_sample(job, use, counted, rules, now, shown=place < SHOWN_SAMPLES) for place, use in enumerate(used)]


def most(found: Mapping[str | None, int], limit: int) -> list[tuple[str | None, int]]:
    """The most frequent ones, equal ones in the order of their texts."""
    return sorted(found.items(), key=lambda entry: (-entry[1], entry[0] or ""))[:limit]


def _sample(job: Job, use: Use, counted: Counted, rules: RecordRules, now: datetime, *, shown: bool) -> Sample:
    about = Sample(template_name=use.template.name, locale=use.template.locale, devices=use.devices)
    try:
        body_bytes = filled_bytes(use.template, job.context)
    except Unrenderable as error:
        return replace(about, failure=error.reason)
    if shown and body_bytes <= SHOWN_BYTES:
        record = _record(job, use.template, counted, rules, now)
        return replace(about, record=record.decode() if len(record) <= SHOWN_BYTES else "", size=len(record))
    around = _record(job, replace(use.template, body={"": ""}), counted, rules, now)
    return replace(about, size=len(around) - len('{"":""}') + body_bytes)


def _record(job: Job, template: Template, counted: Counted, rules: RecordRules, now: datetime) -> bytes:
    alone = replace(job, template_names=(template.name,), plan=Plan(templates=(template,)))
    token_characters = counted.longest_token or SERVICES[job.service].token_characters
    user, token = "made-up".ljust(counted.longest_user, "-"), "FAKE-".ljust(token_characters, "0")
    recipient = Devices.of([(1, user, token, template.locale)])
    rendered = Renderer(alone, replace(rules, max_record_bytes=_UNLIMITED)).render(recipient, now=now)
    [record] = rendered.records
    return record
