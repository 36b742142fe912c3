"""A preview of a job: its recipients, its records and its probable mistakes, without any trace.

Samples have made-up recipients, so that no device's token and no user's id leaves the push database. Their token
and id are as long as the longest counted ones, so that a record has the size of the largest.

Notices are valid but probably mistaken parts. Each has a permanent code, and a sentence for people.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from shared.audience.rules.audiences import Counted
from shared.audience.rules.csv_cuts import HEADER_IS_DATA
from shared.audience.rules.devices import Devices
from shared.core.errors import Invalid
from shared.jobs.rules.groups import Notice, count_devices, list_first
from shared.jobs.rules.jobs import Job, Plan
from shared.jobs.rules.templates import (
    Template,
    Unrenderable,
    filled_bytes,
    find_locale,
    places_by_locale,
    valueless_tags,
)
from shared.push.rules.records import SERVICES, RecordRules
from shared.push.rules.rendering import DEFAULT_LOCALE, Renderer

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


def of_audience(job: Job, counted: Counted) -> Iterator[Notice]:
    if counted.lacks_header:
        yield Notice("no-header", HEADER_IS_DATA)
    if counted.exact and not counted.devices:
        yield Notice("nobody", _nobody(job, counted))
    elif counted.unknown:
        have, get = ("has", "gets") if counted.unknown == 1 else ("have", "get")
        text = f"{counted.unknown:,} of the users in the file {have} no device and {get} nothing."
        yield Notice("unknown-users", text)
    if counted.without_token:
        have = "has" if counted.without_token == 1 else "have"
        yield Notice("no-token", f"{count_devices(counted.without_token)} {have} no token and would be skipped.")
    if not counted.indexed:
        place = "user_id: every batch" if job.csv_path else "seq_id: every page"
        yield Notice("no-index", f"The push table has no index on {place} of the job reads the whole table.")
    by_name = places_by_locale(job.plan.templates)
    for name in dict.fromkeys(job.template_names):
        own = by_name.get(name, {})
        yield from _in_english(
            name, {locale: n for locale, n in counted.locales.items() if not find_locale(locale or "", own)}
        )


def of_flaw(flaw: Invalid) -> Notice:
    return Notice("bad-file", f"The job would fail: {flaw.reason.removesuffix('.')}.")


def of_templates(job: Job, used: Sequence[Use], shown: Sequence[Sample], max_record_bytes: int) -> Iterator[Notice]:
    for use in used:
        if tags := valueless_tags(use.template, job.context):
            place = _name_of(use.template.name, use.template.locale)
            yield Notice(
                "tag-without-value", f"{place}: nothing fills {list_first([f'{{{{{tag}}}}}' for tag in tags])}."
            )
    for sample in shown:
        place = _name_of(sample.template_name, sample.locale)
        if sample.failure:
            yield Notice(sample.failure, f"{place} cannot be rendered: all of its devices would fail.")
        if sample.size > max_record_bytes:
            yield Notice(
                "too-large",
                f"{place} makes records of {sample.size:,} bytes; over {max_record_bytes:,} its devices would fail.",
            )
    served = {place for own in places_by_locale(job.plan.templates).values() for place in own.values()}
    for number, template in enumerate(job.plan.templates):
        if number not in served:
            yield Notice(
                "never-picked",
                f"{_name_of(template.name, template.locale)} is never used: another template has the same locale.",
            )


def _nobody(job: Job, counted: Counted) -> str:
    if job.csv_path:
        users = "The only user" if counted.unknown == 1 else f"None of the {counted.unknown:,} users"
        has = "no device" if counted.unknown == 1 else "a device"
        return f"{users} in the file has {has}: the job would be stopped."
    return "No device belongs to the audience: nothing would be sent."


def _in_english(name: str, locales: Mapping[str | None, int]) -> Iterator[Notice]:
    if locales:
        texts = [
            "none" if locale is None else repr(locale)
            for locale in sorted(locales, key=lambda locale: -locales[locale])
        ]
        number = count_devices(sum(locales.values()))
        yield Notice(
            "english-used",
            f"{name!r} has no template for the locales {list_first(texts)} ({number}): English is used.",
        )


def _name_of(name: str, locale: str) -> str:
    return f"Template {name!r} in {'English' if locale == DEFAULT_LOCALE else repr(locale)}"
