"""A preview of a job's messages: its recipients, counted as far as there is time, and samples of what they would get.

No recipient's data is in a sample: in place of each value that recipients have of their own stands its tag.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shared.domain.jobs.templates import Template, find_locale, places_by_locale
from shared.domain.messages.rendering import Body, MessageTexts
from shared.domain.messages.tags import UNSUBSCRIBE_URL

SHOWN_SAMPLES = 20
SHOWN_BYTES = 64 * 1024


class RecipientCount(Struct, frozen=True, kw_only=True):
    """The counts of an audience: so many `recipients` would be called. The others are `malformed` ones, those who are
    `suppressed`, those whose message is `unrendered` since it would be empty or too long, and rows that are `repeated`.
    `scanned` of `total` was looked at, in bytes of a file or keys of a table; `exact` says that this was all. `columns`
    are its names, once known."""

    recipients: int = 0
    malformed: int = 0
    suppressed: int = 0
    unrendered: int = 0
    repeated: int = 0
    scanned: int = 0
    total: int = 0
    exact: bool = False
    columns: tuple[str, ...] = ()

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


class MessageSample(Struct, frozen=True):
    """The message that the template of one locale makes, and its size as JSON; no `content` where it is too long."""

    locale: str
    size: int
    content: Body | None


def sample_messages(
    templates: Sequence[Template], context: Mapping[str, Any], *, locale: str, columns: Collection[str]
) -> list[MessageSample]:
    """A sample for each of the first `SHOWN_SAMPLES` locales. The first is that of recipients whose own locale has no
    template."""
    places = next(iter(places_by_locale(templates).values()), {})
    default = find_locale(locale, places)
    shown = sorted(places, key=lambda known: (known != default, known))[:SHOWN_SAMPLES]
    return [_sample(templates[places[known]], context, columns) for known in shown]


def _sample(template: Template, context: Mapping[str, Any], columns: Collection[str]) -> MessageSample:
    texts = MessageTexts([template], context, locale=template.locale)
    varying = {*texts.used_columns(columns), *texts.unfilled_tags(columns), UNSUBSCRIBE_URL}
    tags = {tag: [f"{{{{{tag}}}}}"] for tag in varying}
    [content] = texts.render(tags, 1)
    size = texts.measure(tags, 1)[0] if content is None else len(msgspec.json.encode(content))
    return MessageSample(template.locale, size, content if size <= SHOWN_BYTES else None)
