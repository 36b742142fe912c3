"""Tags in the templates of messages: `{{name}}`, a name of letters, digits and `_` in any script (XID of UTS #31).

A name matches columns without regard to case, surrounding blanks and invisible characters. Any other text that begins
with `{{` is refused, so that no recipient ever reads `{{first name}}`: logic (`{{#if}}`), paths (`{{a.b}}`) and raw
values (`{{{x}}}`) of other systems are no tags here. `}}` without an earlier `{{` is text, as in CSS.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct

from shared.domain.audience.column_names import column_name
from shared.domain.errors import Invalid
from shared.domain.jobs.templates import TAG_RULE, dumps, is_tag_name, list_tags

UNSUBSCRIBE_URL = "unsubscribe_url"
"""The tag that no column fills: a recipient's own link (`shared.domain.messages.unsubscribing`)."""

_SHOWN_CHARACTERS = 40


class TaggedText(Struct, frozen=True):
    """A text around its tags: `literals` has one more than `tags`, and they alternate."""

    literals: tuple[str, ...]
    tags: tuple[str, ...]


def split_at_tags(text: str, path: str) -> TaggedText:
    """The text, taken apart. The field of an error is the path."""
    literals, tags, end = [], [], 0
    while (start := text.find("{{", end)) >= 0:
        literals.append(text[end:start])
        close = text.find("}}", start)
        if close < 0:
            raise _refuse(path, text[start:], "it is never closed with }}")
        end = close + len("}}")
        tags.append(_tag_name(text[start:end], path))
    return TaggedText((*literals, text[end:]), tuple(tags))


def find_unfilled(tags: Iterable[str], *filled: Collection[str]) -> list[str]:
    known = {UNSUBSCRIBE_URL}.union(*filled)
    return sorted({*tags} - known)


def check_filled_tags(tags: Iterable[str], *filled: Collection[str]) -> None:
    """Raise `Invalid` for an unfilled tag, because a message with a gap must not be sent."""
    if unfilled := find_unfilled(tags, *filled):
        named = list_tags(unfilled, {*chain.from_iterable(filled)})
        raise Invalid(f"invalid template: no column, context or default for {named}", field="template")


def find_tag(value: Any, name: str, path: str = "body") -> str:
    """The path of the first text with this tag; `""` if there is none."""
    match value:
        case str():
            return path if name in split_at_tags(value, path).tags else ""
        case dict():
            below = ((f"{path}.{key}", each) for key, each in value.items())
        case list():
            below = ((f"{path}[{place}]", each) for place, each in enumerate(value))
        case _:
            return ""
    return next((found for place, each in below if (found := find_tag(each, name, place))), "")


def values_by_tag(values: Mapping[str, Any], field: str) -> dict[str, str | None]:
    """The values of context or defaults for tags, as text: a number or a boolean as in JSON, null as the empty text;
    `None` for an object or a list, which fills no tag."""
    found: dict[str, str | None] = {}
    for key, value in values.items():
        name = column_name(key)
        if name in found:
            raise Invalid(f"invalid {field}: several keys fill the tag {{{{{name}}}}}", field=field)
        found[name] = _text_of(value)
    return found


def texts_only(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in values.items() if text is not None}


def _text_of(value: Any) -> str | None:
    match value:
        case str():
            return value
        case None:
            return ""
        case dict() | list():
            return None
        case _:
            return dumps(value)


def _tag_name(tag: str, path: str) -> str:
    name = column_name(tag[2:-2])
    if not is_tag_name(name):
        raise _refuse(path, tag, TAG_RULE)
    return name


def _refuse(path: str, tag: str, rule: str) -> Invalid:
    shown = tag if len(tag) <= _SHOWN_CHARACTERS else f"{tag[:_SHOWN_CHARACTERS]}…"
    return Invalid(f"invalid template: {shown!r} in {path}: {rule}", field=path, value=shown)
