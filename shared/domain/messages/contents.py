"""The content of messages with filled tags, and whether an account can send it.

Previews, dry runs, single sends and sending all use these rules, so they agree. `ProviderKind.check_content` judges
templates, whose tags are not filled yet.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from shared.domain.messages.credentials import Credential
from shared.domain.messages.rendering import MAX_BODY_CHARACTERS, MessageTexts, TextColumn

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
