"""The content of messages with filled tags: whether an account can send it, and samples of a preview.

Previews, dry runs, single sends and sending all use these rules, so they agree. `ProviderKind.check_content` judges
templates, whose tags are not filled yet. A preview counts recipients as far as time allows; a sample has the values
of the first row, and unfilled tags stay.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shared.jobs.rules.groups import Notice, list_first
from shared.jobs.rules.templates import Template, find_locale, places_by_locale
from shared.messages.rules.credentials import Credential
from shared.messages.rules.rendering import MAX_BODY_CHARACTERS, UNSUBSCRIBE_URL, Body, MessageTexts, TextColumn

SMS_CHARACTERS = 1_600
SMS_RULE = f"an SMS needs 1 to {SMS_CHARACTERS:,} characters"
SUBJECT_RULE = "a mail needs a subject"
MAIL_RULE = "a mail needs text, html or both"
PAYLOAD_BYTES, VOIP_PAYLOAD_BYTES = 4_096, 5_120
"""The limits of APNs, and of FCM for `data`."""
_TAKE_ANYTHING = frozenset({"http", "sandbox"})
_TOO_LARGE = "the message would be too large"
_TOGETHER = 200
_CHARACTERS_TOGETHER = 256 * 1024


def content_flaw(content: Mapping[str, Any], credential: Credential) -> str:
    """The reason why the account cannot send this content; `""` if none is known before the call."""
    match credential.kind:
        case "twilio" if content.get("contentSid"):
            return variables_flaw(content.get("contentVariables", {}))
        case "twilio":
            text = str(content.get("text", ""))
            return "" if text.strip() and len(text) <= SMS_CHARACTERS else SMS_RULE
        case "sendgrid" | "ses" | "smtp":
            subject, text, html = (str(content.get(part, "")).strip() for part in ("subject", "text", "html"))
            return SUBJECT_RULE if not subject else "" if text or html else MAIL_RULE
        case "apns":
            most = VOIP_PAYLOAD_BYTES if credential.fields.get("pushType") == "voip" else PAYLOAD_BYTES
            return _size_flaw("payload", len(msgspec.json.encode(content)), most)
        case "fcm":
            data = content.get("data", {})
            size = sum(len(f"{name}{value}".encode()) for name, value in data.items())
            return _size_flaw("data", size, PAYLOAD_BYTES)
        case _:
            return ""


def variables_flaw(variables: Any) -> str:
    if not isinstance(variables, dict):
        return "contentVariables must be an object whose values are texts"
    for name, value in variables.items():
        if not isinstance(value, str) or not value.strip() or len(value) > SMS_CHARACTERS:
            return f"contentVariables.{name} needs 1 to {SMS_CHARACTERS:,} characters"
    return ""


def find_flaws(
    texts: MessageTexts, columns: Mapping[str, TextColumn], lengths: Sequence[int], credential: Credential
) -> Iterator[dict[int, str]]:
    """The reasons why messages cannot be sent, by their places. The messages are made of these columns, and have these
    lengths (`MessageTexts.measure`). They come in groups: all of a batch would take much memory and time."""
    yield {place: _TOO_LARGE for place, length in enumerate(lengths) if length > MAX_BODY_CHARACTERS}
    if credential.kind in _TAKE_ANYTHING:
        return
    fitting = [place for place, length in enumerate(lengths) if length <= MAX_BODY_CHARACTERS]
    for first, end in pairwise(ends_of_groups([lengths[place] for place in fitting])):
        places = fitting[first:end]
        theirs = {tag: [values[place] for place in places] for tag, values in columns.items()}
        found = zip(places, texts.render(theirs, len(places)), strict=True)
        yield {place: why for place, body in found if (why := content_flaw(body or {}, credential))}


def ends_of_groups(lengths: Sequence[int]) -> Iterator[int]:
    """The places that split messages of these lengths into groups of neighbours to render together, from 0 to the end.
    A group has a limited number of messages and characters, or a single message."""
    yield 0
    first, characters = 0, 0
    for place, length in enumerate(lengths):
        characters += length
        if place > first and (characters > _CHARACTERS_TOGETHER or place - first == _TOGETHER):
            yield place
            first, characters = place, length
    if lengths:
        yield len(lengths)


def _size_flaw(part: str, size: int, most: int) -> str:
    return "" if size <= most else f"the {part} has {size:,} bytes; at most {most:,} are allowed"


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
