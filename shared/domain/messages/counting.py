"""A preview of a job's messages: a count of recipients, as far as time allows, and samples. A sample has the values of
the first row; unfilled tags stay."""

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
"""Maximum addresses that a preview compares without case."""


class RecipientCount(Struct, frozen=True, kw_only=True):
    """The counts of an audience. `recipients` would be called. The others are `malformed`, `suppressed`, `unrendered`
    (an empty or too long message) or `repeated` rows. `scanned` of `total` were read, in bytes of a file or keys of a
    table; `exact`: that was all. `columns` are the names, once known, and `first` the values for the first row's
    message. `locales` counts rows by their locale as written, for the first `LOCALES` of them. `differ_in_case` counts
    mail addresses that equal an earlier one except for case."""

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
        return self.recipients + self.malformed + self.suppressed + self.unrendered

    def with_part(
        self, *, rows: int, malformed: int, suppressed: int, unrendered: int = 0, repeated: int, scanned: int
    ) -> "RecipientCount":
        """These counts plus those of the next rows, up to `scanned`."""
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
        """The estimated total if `found` are in the scanned part; `None` if nothing was scanned."""
        if self.exact:
            return found
        return round(found * max(self.total, self.scanned) / self.scanned) if self.scanned else None


def warn_of(counted: RecipientCount, templates: Sequence[Template], *, locale: str) -> list[Notice]:
    """Notices about the recipients, as far as they were counted; `locale` is the job's."""
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
    """The message from the template of one locale, and its size as JSON; no `content` if it is too long."""

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
    """A sample for each of the first `SHOWN_SAMPLES` locales, with the values of the `first` row. The default locale
    comes first."""
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
