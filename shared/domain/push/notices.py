"""Notices in the preview of a job: valid but probably mistaken parts. Each has a permanent code, and a sentence for
people."""

from collections.abc import Iterator, Mapping, Sequence

from shared.domain.audience.counts import Counted
from shared.domain.audience.csv_slices import HEADER_IS_DATA
from shared.domain.errors import Invalid
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.notices import Notice, count_devices, list_first
from shared.domain.jobs.templates import find_locale, places_by_locale
from shared.domain.jobs.trial import valueless_tags
from shared.domain.push.preview import Sample, Use
from shared.domain.push.rendering import DEFAULT_LOCALE


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
            place = _template(use.template.name, use.template.locale)
            yield Notice(
                "tag-without-value", f"{place}: nothing fills {list_first([f'{{{{{tag}}}}}' for tag in tags])}."
            )
    for sample in shown:
        place = _template(sample.template_name, sample.locale)
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
                f"{_template(template.name, template.locale)} is never used: another template has the same locale.",
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


def _template(name: str, locale: str) -> str:
    return f"Template {name!r} in {'English' if locale == DEFAULT_LOCALE else repr(locale)}"
