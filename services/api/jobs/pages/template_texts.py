"""The state of a template's texts: its locales, and the tags that one of them lacks."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from services.api.http.pages.filters import pretty
from shared.domain.jobs.templates import tags_of, texts_of

ENGLISH = "en"
_TAG = re.compile(r"\{\{.*?\}\}", re.DOTALL)

TemplateItem = dict[str, Any]
"""A template of one locale, as the API shows it."""


class NamedTemplate(Struct, kw_only=True):
    """The templates of one name. `changed_at` is in ns since the epoch."""

    name: str
    locales: list[str]
    changed_at: int
    created_by: str

    @property
    def has_english(self) -> bool:
        """Whether a push can send it."""
        return ENGLISH in self.locales


class TextPiece(Struct, frozen=True):
    """A part of a text: a tag, which has a default or needs a value, or what stands between two tags."""

    text: str
    is_tag: bool = False
    is_open: bool = False


class LocaleView(Struct, frozen=True, kw_only=True):
    """One locale of a template: its body in pieces, and what a reader should know of it."""

    template: TemplateItem
    body: list[TextPiece]
    needed: list[str]
    faults: list[str]


def group_by_name(templates: Iterable[TemplateItem]) -> list[NamedTemplate]:
    """The templates by their names, in alphabetical order."""
    named: dict[str, NamedTemplate] = {}
    for item in templates:
        name = item["name"]
        group = named.setdefault(name, NamedTemplate(name=name, locales=[], changed_at=0, created_by=item["createdBy"]))
        group.locales.append(item["locale"])
        group.changed_at = max(group.changed_at, item["updatedAt"])
    for group in named.values():
        group.locales.sort(key=_english_first)
    return sorted(named.values(), key=lambda group: group.name.lower())


def sort_locales(templates: Iterable[TemplateItem]) -> list[TemplateItem]:
    """English, which serves everybody without a text of their own, and then the others."""
    return sorted(templates, key=lambda item: _english_first(item["locale"]))


def describe_locale(item: TemplateItem, english: TemplateItem | None) -> LocaleView:
    """One locale beside the English text."""
    tags = tags_in(item["body"])
    needed = [tag for tag in tags if item["defaults"].get(tag) is None]
    return LocaleView(
        template=item,
        body=cut(pretty(item["body"]), needed),
        needed=needed,
        faults=[*_faults_of_locale(item["locale"]), *_missing_tags(tags, english)],
    )


def tags_in(body: Any) -> list[str]:
    """The tags of a body, each once, in their order."""
    return list(dict.fromkeys(tag for text in texts_of(body) for tag in tags_of(text)))


def cut(text: str, needed: Sequence[str]) -> list[TextPiece]:
    """A text, cut at its tags."""
    pieces, end = [], 0
    for tag in _TAG.finditer(text):
        pieces.append(TextPiece(text[end : tag.start()]))
        pieces.append(TextPiece(tag[0], is_tag=True, is_open=tag[0][2:-2] in needed))
        end = tag.end()
    return [piece for piece in [*pieces, TextPiece(text[end:])] if piece.text]


def read_notification(body: Any) -> dict[str, str] | None:
    """The title and the text that a phone would show, where the body has them in their usual places."""
    if not isinstance(body, dict):
        return None
    alert = body.get("alert")
    if isinstance(alert, str):
        return {"title": "", "body": alert}
    texts = alert if isinstance(alert, dict) else body
    found = {part: text for part in ("title", "body") if isinstance(text := texts.get(part), str) and text}
    return {"title": "", "body": ""} | found if found else None


def notification_of(record: Any) -> dict[str, str] | None:
    """The same of a record, as services get it."""
    if not isinstance(record, dict):
        return None
    payload = record.get("Payload")
    return read_notification(payload.get("aps") if isinstance(payload, dict) else record.get("data"))


def message_of(content: Any) -> dict[str, str] | None:
    """The title and body of an account's message, such as the subject and text of a mail; `None` for neither."""
    if not isinstance(content, dict):
        return None
    if isinstance(content.get("text") or content.get("subject"), str):
        return {"title": str(content.get("subject") or ""), "body": str(content.get("text") or "")}
    return read_notification(content.get("aps") or content.get("notification") or content)


def _faults_of_locale(locale: str) -> list[str]:
    if locale == locale.lower():
        return []
    return [f"No device gets it: locales are compared in lower case. Call it {locale.lower()}."]


def _missing_tags(tags: Sequence[str], english: TemplateItem | None) -> list[str]:
    if english is None:
        return []
    own = tags_in(english["body"])
    faults = [f"The English text has {{{{{tag}}}}}, this one does not." for tag in own if tag not in tags]
    return faults + [f"This text has {{{{{tag}}}}}, the English one does not." for tag in tags if tag not in own]


def _english_first(locale: str) -> tuple[bool, str]:
    return (locale != ENGLISH, locale)
