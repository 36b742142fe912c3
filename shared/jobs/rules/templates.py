"""Templates: a JSON body with `{{name}}` tags, per name and locale, that a job renders for its recipients.

A tag is the text between `{{` and the next `}}`; there is no nesting and no logic. Pushes take its name exactly,
with all blanks. A new template has only names of letters, digits and `_`, in any script, so that tags of other
systems are never sent as text. The rules hold for templates, and for any JSON of a caller that is stored.

A short template can expand beyond any memory: thousands of tags, each for the same long value. So every caller that
fills a body checks `filled_bytes` first.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from shared.audience.rules.audiences import normal_locale
from shared.audience.rules.columns import column_name
from shared.core.errors import Invalid, suggest
from shared.core.plain_words import JSON_DEPTH, NOT_EXACT

# Fast only if every `{{` has its `}}`: after the last `}}` it would scan from each `{{` to the text's end.
_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_TAG_NAME = re.compile(r"\w+")
TAG_RULE = "a tag is {{name}}, a name of letters, digits and _"
NAME_CHARACTERS = 255
LOCALE_CHARACTERS = 10
VALUE_BYTES = 64 * 1024
KEY_BYTES = 1_024
INTEGERS = range(-(2**63), 2**63)
# A job's document, which MongoDB limits to 16 MB, contains copies of its templates beside its other fields.
COPIES_BYTES = 8 * 2**20
_SHOWN_CHARACTERS = 64
_SHOWN_TAGS = 10
_TOO_DEEP = f"nested more than {JSON_DEPTH} deep"


class Template(Struct, frozen=True, kw_only=True):
    """One body in one locale. `defaults` fill the tags that a job's context leaves open. Times in ns since 1970."""

    id: str
    app_id: str
    name: str
    locale: str
    body: dict[str, Any]
    defaults: dict[str, Any] = {}
    created_by: str = ""
    created_at: int = 0
    updated_at: int = 0


def find_locale(wanted: str, known: Container[str]) -> str | None:
    """The normal locale among the known ones that serves `wanted`: the same, or its longest known prefix, as in the
    lookup of RFC 4647, section 3.4: `zh-hant-tw`, `zh-hant`, `zh`."""
    locale = normal_locale(wanted)
    while locale and locale not in known:
        locale = locale.rpartition("-")[0]
    return locale or None


def places_by_locale(templates: Sequence[Template]) -> dict[str, dict[str, int]]:
    """The places of the templates in their list, by name and normal locale. If two have one normal locale, the first is
    the one written in it, then one in lower case, then the first by its text: the other is never used."""
    places: dict[str, dict[str, int]] = {}
    ordered = sorted(enumerate(templates), key=lambda entry: _precedence(entry[1].locale))
    for place, template in ordered:
        places.setdefault(template.name, {}).setdefault(normal_locale(template.locale), place)
    return places


def _precedence(locale: str) -> tuple[bool, bool, str]:
    return (locale != normal_locale(locale), locale != locale.lower(), locale)


class Repeated:
    """Takes the place of the values of a repeated key, in decoded JSON."""


class NotExact:
    """Takes the place of a number that a float would change, in decoded JSON."""


def check_template(*, name: str, locale: str, body: Any, defaults: Any, lenient: bool = False) -> None:
    """Apply the rules in the order in which a client expects the errors; a `field` names the leaf (`body.loc-args[2]`).
    If `lenient`, tags have any name, as in Marathon."""
    check_name(name)
    _check_length("locale", locale, LOCALE_CHARACTERS)
    check_body(body, lenient=lenient)
    check_defaults(defaults)


def check_name(name: str) -> None:
    _check_length("name", name, NAME_CHARACTERS)


def check_body(body: Any, *, lenient: bool = False) -> None:
    """Every `{{` in the texts and keys of a body begins a tag, with a valid name unless `lenient`."""
    if not isinstance(body, dict) or not body:
        raise Invalid("invalid body: an object with at least one key is needed", field="body", value=body)
    check_json("body", body)
    fault_of = _open_tag_fault if lenient else _tag_fault
    found = _first_fault(body, fault_of, fault_of)
    if found is not None:
        path = _path("body", found.keys)
        raise Invalid(f"invalid body: {path} {found.fault}", field=path, value=found.leaf)


def check_defaults(defaults: Any) -> None:
    if not isinstance(defaults, dict):
        raise Invalid("invalid defaults: an object is needed", field="defaults", value=defaults)
    check_json("defaults", defaults)


def check_json(field: str, value: Any) -> None:
    """Check that decoded JSON from a caller can be stored and sent unchanged; `field` is its name in the request.

    Texts and keys contain no NUL, a text has at most 64 KiB and a key 1 KiB, 64 bits keep each number (`NotExact`), no
    object repeats a key (`Repeated`), nesting ends at `JSON_DEPTH`. The error's reason begins with `invalid <field>`.
    """
    found = _first_fault(value, _leaf_fault, lambda key: _text_fault(key, KEY_BYTES))
    if found is None:
        return
    if found.fault is _TOO_DEEP:
        raise Invalid(f"invalid {field}: {found.fault}", field=field)
    path = _path(field, found.keys)
    raise Invalid(f"invalid {field}: {path} {found.fault}", field=path)


def check_copies(size: int) -> None:
    """Check that a job can copy templates whose bodies and defaults have this many bytes of JSON."""
    if size > COPIES_BYTES:
        rule = f"the templates of a job, in all locales, may have {COPIES_BYTES} bytes together"
        raise Invalid(f"invalid template: {rule}, not {size}", field="template")


def has_open_tag(text: str) -> bool:
    return text.rfind("{{") > text.rfind("}}")


def tags_of(text: str) -> list[str]:
    return _TAG.findall(text, 0, text.rfind("}}") + 2)


def is_tag_name(name: str) -> bool:
    """Whether a tag may have this name, from `column_name`: letters, digits and `_` (XID of UTS #31)."""
    return _TAG_NAME.fullmatch(name) is not None or (name != "" and f"_{name}".isidentifier())


def list_tags(unfilled: Sequence[str], known: Collection[str]) -> str:
    more = len(unfilled) - _SHOWN_TAGS
    named = ", ".join(f"{{{{{_shorten(tag)}}}}}" for tag in unfilled[:_SHOWN_TAGS])
    return f"{named}{f' and {more} more' if more > 0 else ''}{suggest(unfilled[0], known)}"


def fill(text: str, value: Callable[[str], str]) -> str:
    closed = text.rfind("}}") + 2
    return _TAG.sub(lambda tag: value(tag[1]), text[:closed]) + text[closed:]


def _check_length(field: str, text: str, most: int) -> None:
    if not 1 <= len(text) <= most:
        raise Invalid(f"invalid {field}: 1 to {most} characters are needed", field=field, value=text)
    check_json(field, text)


def texts_of(value: Any) -> Iterator[str]:
    rest = [value]
    while rest:
        match rest.pop():
            case str() as text:
                yield text
            case dict() as entries:
                for key, inner in reversed(entries.items()):
                    rest += (inner, key)
            case list() as items:
                rest += reversed(items)
            case _:
                pass


class _Found(Struct):
    """An invalid leaf or key, and the keys and indexes of its path, the innermost first."""

    leaf: Any
    fault: str
    keys: list[str | int]


def _first_fault(
    value: Any, leaf_fault: Callable[[Any], str], key_fault: Callable[[str], str], depth: int = 0
) -> _Found | None:
    """Paths are made only for faults, because there may be as many leaves as a body has bytes."""
    if depth > JSON_DEPTH:
        return _Found(None, _TOO_DEEP, [])
    entries: Iterable[tuple[str | int, Any]]
    match value:
        case dict():
            entries = value.items()
        case list():
            entries = enumerate(value)
        case _:
            fault = leaf_fault(value)
            return _Found(value, fault, []) if fault else None
    for key, inner in entries:
        if isinstance(key, str) and (fault := key_fault(key)):
            return _Found(key, fault, [key])
        if inner.__class__ is int and inner in INTEGERS and depth < JSON_DEPTH:
            continue  # a shortcut for large bodies full of numbers
        if found := _first_fault(inner, leaf_fault, key_fault, depth + 1):
            found.keys.append(key)
            return found
    return None


def _path(field: str, keys: list[str | int]) -> str:
    steps = (f"[{key}]" if isinstance(key, int) else f".{_shorten(key)}" for key in reversed(keys))
    return field + "".join(steps)


def _shorten(key: str) -> str:
    return key if len(key) <= KEY_BYTES else f"{key[:_SHOWN_CHARACTERS]}…"


def _leaf_fault(leaf: Any) -> str:
    match leaf:
        case str():
            return _text_fault(leaf, VALUE_BYTES)
        case bool() | None:
            return ""
        case int():
            return "" if leaf in INTEGERS else "does not fit in 64 bits"
        case float():
            return "" if math.isfinite(leaf) else "does not fit in 64 bits"
        case Repeated():
            return "occurs twice in one object"
        case NotExact():
            return NOT_EXACT
        case _:
            return ""


def _open_tag_fault(leaf: Any) -> str:
    return "opens a tag with {{ and never closes it" if isinstance(leaf, str) and has_open_tag(leaf) else ""


def _tag_fault(leaf: Any) -> str:
    if not isinstance(leaf, str) or "{{" not in leaf:
        return ""
    if fault := _open_tag_fault(leaf):
        return fault
    bad = next((tag for tag in tags_of(leaf) if not is_tag_name(column_name(tag))), None)
    return "" if bad is None else f"has {{{{{_shorten(bad)}}}}}: {TAG_RULE}"


def _text_fault(text: str, most: int) -> str:
    if "\0" in text:
        return "holds a NUL character"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    return "" if size <= most else f"is longer than {most} bytes"


def dumps(value: Any) -> str:
    """Compact JSON without line breaks and with minimal escaping."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


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
        return Trial(fault=f"{error.reason}: the tag {tag!r} is an object or an array", field=f"context.{tag}")
    if size > most:
        return Trial(fault=f"too-large: the text has {size:,} bytes, {most:,} are allowed", field="body", size=size)
    return Trial(body=filled_body(template, context), size=size, valueless=valueless_tags(template, context))


def valueless_tags(template: Template, context: Mapping[str, Any]) -> tuple[str, ...]:
    values = {**template.defaults, **context}
    tags = {tag for text in texts_of(template.body) for tag in tags_of(text)}
    return tuple(sorted(tag for tag in tags if values.get(tag) is None))
