"""Templates: a JSON body with `{{name}}` tags, per name and locale, that a job renders for its recipients.

A tag is the text between `{{` and the next `}}`; there is no nesting and no logic. Pushes take its name exactly, with
all blanks. A new template has only names of letters, digits and `_`, in any script, so that tags of other systems are
never sent as text. This module also has the rules for templates, and for any JSON of a caller that is stored.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from shared.domain.audience.audiences import normal_locale
from shared.domain.audience.column_names import column_name
from shared.domain.errors import Invalid, suggest
from shared.domain.plain_words import JSON_DEPTH, NOT_EXACT

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
    found = _first_fault(value, _leaf_fault, _key_fault)
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
            return "stands twice in one object"
        case NotExact():
            return NOT_EXACT
        case _:
            return ""


def _key_fault(key: str) -> str:
    return _text_fault(key, KEY_BYTES)


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
