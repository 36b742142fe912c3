"""A trial of a template: its body with a context, or its first fault."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from shared.domain.errors import Invalid
from shared.domain.jobs.filling import Unrenderable, filled_body, filled_bytes
from shared.domain.jobs.templates import Template, check_json, check_template, tags_of, texts_of


class Trial(Struct, frozen=True, kw_only=True):
    """The filled body, or the `fault` and its `field`, as in `body.alert.title`. `valueless` tags have no value and
    leave gaps."""

    body: dict[str, Any] | None = None
    size: int = 0
    fault: str = ""
    field: str = ""
    valueless: tuple[str, ...] = ()


def try_template(template: Template, context: Mapping[str, Any], *, most: int, lenient: bool = False) -> Trial:
    """Fill the template, unless that makes more than `most` bytes. In linear time."""
    name, locale, body, defaults = template.name, template.locale, template.body, template.defaults
    try:
        check_template(name=name, locale=locale, body=body, defaults=defaults, lenient=lenient)
        check_json("context", context)
        size = filled_bytes(template, context)
    except Invalid as error:
        return Trial(fault=error.reason, field=error.field or "")
    except Unrenderable as error:
        values = {**defaults, **context}
        tags = (tag for text in texts_of(template.body) for tag in tags_of(text))
        tag = next((tag for tag in tags if isinstance(values.get(tag), dict | list)), "")
        return Trial(fault=f"{error.reason}: the tag {tag!r} stands for an object or an array", field=f"context.{tag}")
    if size > most:
        return Trial(fault=f"too-large: the text has {size:,} bytes, {most:,} are allowed", field="body", size=size)
    return Trial(body=filled_body(template, context), size=size, valueless=valueless_tags(template, context))


def valueless_tags(template: Template, context: Mapping[str, Any]) -> tuple[str, ...]:
    values = {**template.defaults, **context}
    tags = {tag for text in texts_of(template.body) for tag in tags_of(text)}
    return tuple(sorted(tag for tag in tags if values.get(tag) is None))
