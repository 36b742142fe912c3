"""A preview of a job's messages: its recipients, counted as far as there is time, and samples of what they would get.

A sample has the values of the first row. A tag that nothing fills stays.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shared.domain.jobs.notices import Notice, list_first
from shared.domain.jobs.templates import Template, find_locale, places_by_locale
from shared.domain.messages.rendering import Body, MessageTexts
from shared.domain.messages.tags import UNSUBSCRIBE_URL

SHOWN_SAMPLES = 20
SHOWN_BYTES = 64 * 1024
LOCALES = 1_000
ADDRESSES = 1_000_000
"""How many addresses a preview compares without case."""


class RecipientCount(Struct, frozen=True, kw_only=True):
    """The counts of an audience: so many `recipients` would be called. The others are `malformed` ones, those who are
    `suppressed`, those whose message is `unrendered` since it would be empty or too long, and rows that are `repeated`.
    `scanned` of `total` was looked at, in bytes of a file or keys of a table; `exact` says that this was all. `columns`
    are its names, once known, and `first` the values that the first row's message needs. `locales` counts rows by
    their locale as it is written, for the first `LOCALES` of them. `differ_in_case` counts mail addresses that equal an
    earlier one but for case."""

    recipients: int = 0
    malformed: int = 0
    suppressed: int = 0
    unrendered: int = 0
    repeated: int = 0
    scanned: int = 0
    total: int = 0
    exact: bool = False
    columns: tuple[str, ...] = ()
    first: Mapping[str, str] = {}
    locales: Mapping[str, int] = {}
    differ_in_case: int = 0

    @property
    def planned(self) -> int:
        """How many messages were counted: those who are never called count as messages, too."""
        return self.recipients + self.malformed + self.suppressed + self.unrendered

    def with_part(
        self, *, rows: int, malformed: int, suppressed: int, unrendered: int = 0, repeated: int, scanned: int
    ) -> "RecipientCount":
        """This and what was found in the next rows, which end there."""
        return replace(
            self,
            recipients=self.recipients + rows - malformed - suppressed - unrendered - repeated,
            malformed=self.malformed + malformed,
            suppressed=self.suppressed + suppressed,
            unrendered=self.unrendered + unrendered,
            repeated=self.repeated + repeated,
            scanned=scanned,
        )

    def estimate(self, found: int) -> int | None:
        """How many there are in all if `found` are in the part that was scanned, taking the rest to be like it."""
        if self.exact:
            return found
        return round(found * max(self.total, self.scanned) / self.scanned) if self.scanned else None


def warn_of(counted: RecipientCount, templates: Sequence[Template], *, locale: str) -> list[Notice]:
    """Notices about who would get the messages, as far as that was counted; `locale` is the job's."""
    notices = []
    places = next(iter(places_by_locale(templates).values()), {})
    others = {known: rows for known, rows in counted.locales.items() if known and not find_locale(known, places)}
    if others:
        texts = list_first([repr(known) for known in sorted(others, key=lambda known: -others[known])])
        rows = f"{sum(others.values()):,} row{'' if sum(others.values()) == 1 else 's'}"
        name = templates[0].name
        notices.append(
            Notice("default-locale", f"{name!r} has no template for the locales {texts} ({rows}): {locale!r} is used.")
        )
    if number := counted.differ_in_case:
        differ = "1 address differs" if number == 1 else f"{number:,} addresses differ"
        sentence = f"{differ} only in case from an earlier one: before the @, case counts, so each gets a message."
        notices.append(Notice("case-differs", sentence))
    return notices


class MessageSample(Struct, frozen=True):
    """The message that the template of one locale makes, and its size as JSON; no `content` where it is too long."""

    locale: str
    size: int
    content: Body | None


def sample_messages(
    templates: Sequence[Template],
    context: Mapping[str, Any],
    *,
    locale: str,
    columns: Collection[str],
    first: Mapping[str, str],
) -> list[MessageSample]:
    """A sample for each of the first `SHOWN_SAMPLES` locales, filled with the values of the `first` row. It begins with
    that of recipients whose own locale has no template."""
    places = next(iter(places_by_locale(templates).values()), {})
    default = find_locale(locale, places)
    shown = sorted(places, key=lambda known: (known != default, known))[:SHOWN_SAMPLES]
    return [_sample(templates[places[known]], context, columns, first) for known in shown]


def _sample(
    template: Template, context: Mapping[str, Any], columns: Collection[str], first: Mapping[str, str]
) -> MessageSample:
    texts = MessageTexts([template], context, locale=template.locale)
    varying = {*texts.used_columns(columns), *texts.unfilled_tags(columns), UNSUBSCRIBE_URL}
    tags = {tag: [first.get(tag, f"{{{{{tag}}}}}")] for tag in varying}
    [content] = texts.render(tags, 1)
    size = texts.measure(tags, 1)[0] if content is None else len(msgspec.json.encode(content))
    return MessageSample(template.locale, size, content if size <= SHOWN_BYTES else None)
