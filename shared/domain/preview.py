"""A preview of a job: who would get it and what, without a trace of it anywhere.

Samples go to recipients that are made up, so that no device's token and no user's id leaves the push database; these
are as long as the longest that were counted, so that the size of a record is that of the largest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.filling import Unrenderable, filled_bytes
from shared.domain.jobs import Job, Plan
from shared.domain.records import SERVICES, RecordRules
from shared.domain.rendering import DEFAULT_LOCALE, Renderer
from shared.domain.templates import Template, tags_of, texts_of
from shared.domain.zones import REST, zone_of

SHOWN_BYTES = 64 * 1024
SHOWN_SAMPLES = 20
TEXTS = 1_000
"""How many different zones and locales are told apart; what comes after the most frequent ones is only counted."""

_UNLIMITED = 2**62


class Counted(Struct, frozen=True, kw_only=True):
    """What was found of an audience, in devices but for `users`.

    `zones` and `locales` are as the push table writes them, NULL included, and hold the most frequent ones. `scanned`
    counts rows of the table, kept by the filters or not, and `total` is how many it has, as far as the catalogue or the
    keys tell; of a file, both are bytes. `exact` says that everything was looked at. Of a table, `users` is exact up to
    a million. Of a file, `unknown` counts the users who have no device, and `repeated` the rows of those who stand
    before. The longest token and user id are in bytes. `indexed` says whether the table has an index on its keys, or on
    its users if the audience is a file.
    """

    devices: int = 0
    users: int = 0
    without_token: int = 0
    zones: Mapping[str | None, int] = {}
    locales: Mapping[str | None, int] = {}
    scanned: int = 0
    total: int = 0
    exact: bool = False
    indexed: bool = True
    longest_token: int = 0
    longest_user: int = 0
    unknown: int = 0
    repeated: int = 0

    def estimated(self, found: int) -> int | None:
        """How many there are in all if `found` are in the part that was scanned, taking the rest to be like it."""
        if self.exact:
            return found
        return round(found * max(self.total, self.scanned) / self.scanned) if self.scanned else None

    def by_zone(self) -> dict[str, int]:
        """The devices of each zone of a localized job that has some."""
        found: Counter[str] = Counter()
        for text, devices in self.zones.items():
            found[zone_of(text)] += devices
        if unlisted := self.devices - found.total():
            found[REST] += unlisted
        return dict(found)

    def with_slice(self, found: "Counted", *, repeated: int, upto: int) -> "Counted":
        """This and what was found of a file's next users, when it has been looked at up to the byte `upto`."""
        return replace(
            self,
            devices=self.devices + found.devices,
            users=self.users + found.users,
            without_token=self.without_token + found.without_token,
            zones=frequent(Counter(self.zones) + Counter(found.zones)),
            locales=frequent(Counter(self.locales) + Counter(found.locales)),
            scanned=upto,
            indexed=found.indexed,
            longest_token=max(self.longest_token, found.longest_token),
            longest_user=max(self.longest_user, found.longest_user),
            unknown=self.unknown + found.unknown,
            repeated=self.repeated + repeated,
        )


def frequent(found: Counter[str | None]) -> Counter[str | None]:
    """The most frequent ones, as many as are told apart."""
    return found if len(found) <= TEXTS else Counter(dict(found.most_common(TEXTS)))


class Use(Struct, frozen=True):
    """A template that some device can get, and how many of the counted ones would get it if it had the only name."""

    template: Template
    devices: int


class Sample(Struct, frozen=True, kw_only=True):
    """One template's record for a made-up recipient, or why there is none (`failure`, a key of a job's `reasons`). Only
    the first `SHOWN_SAMPLES` of a job have a record, and only those of at most `SHOWN_BYTES`; of all others the size is
    told, from the lengths of what they would be made of."""

    template_name: str
    locale: str
    devices: int
    record: str = ""
    size: int = 0
    failure: str = ""


def uses(job: Job, locales: Mapping[str | None, int]) -> list[Use]:
    """The templates of a draft that its devices can get: what most of the counted ones get comes first."""
    own = {(template.name, template.locale): template for template in job.plan.templates}
    found = Counter({key: 0 for key, template in own.items() if is_picked(template)})
    for name in dict.fromkeys(job.template_names):
        for locale, devices in locales.items():
            exact = (name, (locale or "").lower())
            found[exact if exact in own else (name, DEFAULT_LOCALE)] += devices
    return [Use(own[key], devices) for key, devices in found.most_common() if key in own]


def is_picked(template: Template) -> bool:
    """Whether any device can get it: a device's locale is compared in lower case."""
    return template.locale == template.locale.lower()


def samples(job: Job, used: Iterable[Use], counted: Counted, rules: RecordRules, now: datetime) -> list[Sample]:
    """The record of each template, whatever its size, as it would go out at `now`."""
    return [_sample(job, use, counted, rules, now, shown=place < SHOWN_SAMPLES) for place, use in enumerate(used)]


def valueless_tags(template: Template, context: Mapping[str, Any]) -> list[str]:
    """The tags for which neither the context nor the defaults have a value, so that nothing stands in their place."""
    values = {**template.defaults, **context}
    tags = {tag for text in texts_of(template.body) for tag in tags_of(text)}
    return sorted(tag for tag in tags if values.get(tag) is None)


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
    recipient = (
        1,
        "made-up".ljust(counted.longest_user, "-"),
        "FAKE-".ljust(token_characters, "0"),
        template.locale,
        None,
    )
    rendered = Renderer(alone, replace(rules, max_record_bytes=_UNLIMITED)).render([recipient], now=now)
    [record] = rendered.records
    return record
