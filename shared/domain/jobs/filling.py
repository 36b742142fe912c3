"""Filling: a template's body with values in place of its tags, and its size before it is made.

A short template can expand beyond any memory: thousands of tags, each for the same long value. So every caller that
fills a body checks `filled_bytes` first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from shared.domain.errors import Invalid
from shared.domain.jobs.templates import Template, dumps, fill, has_open_tag, list_tags, tags_of, texts_of

BAD_CONTEXT = "bad-context"  # a tag's value is an object or an array
BAD_TEMPLATE = "bad-template"  # a tag is never closed


class Unrenderable(Exception):
    """No recipient of this template can be served; `reason` is the key that counts them."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def filled_body(template: Template, context: Mapping[str, Any]) -> dict[str, Any]:
    """The template's body with the context, over its defaults, in place of the tags in its texts and keys. A number or
    a boolean is written as in JSON; null or a missing value leaves nothing. `Unrenderable`: a tag's value is an object
    or an array (`bad-context`), or a tag never ends (`bad-template`)."""
    values = {**template.defaults, **context}
    return {_fill_text(key, values): _fill_value(inner, values) for key, inner in template.body.items()}


def filled_bytes(template: Template, context: Mapping[str, Any]) -> int:
    """The bytes of `filled_body` as compact JSON, from the tags and the lengths of their values. The true size is
    smaller if several keys of an object become the same."""
    values = {**template.defaults, **context}
    grown: dict[str, int] = {}
    size = len(dumps(template.body).encode())
    for text in texts_of(template.body):
        if has_open_tag(text):
            raise Unrenderable(BAD_TEMPLATE)
        for tag, times in Counter(tags_of(text)).items():
            if tag not in grown:
                grown[tag] = _written_bytes(_tag_text(values.get(tag))) - _written_bytes(f"{{{{{tag}}}}}")
            size += times * grown[tag]
    return size


def check_tags(templates: Iterable[Template], context: Mapping[str, Any]) -> None:
    """Raise `Invalid` for the first template with tags without a value in the context or a default, because they would
    leave gaps. `null` is a value."""
    for template in templates:
        known = template.defaults.keys() | context.keys()
        tags = {tag for text in texts_of(template.body) for tag in tags_of(text)}
        if unfilled := sorted(tags - known):
            place = f"{template.name!r} in {template.locale!r}: context and defaults have no value for"
            raise Invalid(f"invalid template: {place} {list_tags(unfilled, known)}", field="context")


def check_filled(
    templates: Iterable[Template], context: Mapping[str, Any], metadata: Mapping[str, Any], *, most: int, field: str
) -> None:
    """Raise `Invalid` for the first template whose records would all have more than `most` bytes."""
    around = len(dumps(metadata).encode()) if metadata else 0
    for template in templates:
        try:
            size = filled_bytes(template, context) + around
        except Unrenderable:
            continue  # it makes no record, and a preview says so
        if size > most:
            fault = f"the template {template.name!r} in {template.locale!r} makes records of {size:,} bytes or more"
            raise Invalid(f"invalid {field}: {fault}, {most:,} are allowed", field=field)


def _fill_value(value: Any, values: Mapping[str, Any]) -> Any:
    match value:
        case str():
            return _fill_text(value, values)
        case dict():
            return {_fill_text(key, values): _fill_value(inner, values) for key, inner in value.items()}
        case list():
            return [_fill_value(inner, values) for inner in value]
        case _:
            return value


def _fill_text(text: str, values: Mapping[str, Any]) -> str:
    if has_open_tag(text):
        raise Unrenderable(BAD_TEMPLATE)
    return fill(text, lambda tag: _tag_text(values.get(tag)))


def _tag_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case dict() | list():
            raise Unrenderable(BAD_CONTEXT)
        case _:
            return dumps(value)


def _written_bytes(text: str) -> int:
    return len(dumps(text).encode()) - len('""')
