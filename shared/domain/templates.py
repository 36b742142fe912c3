"""Templates: a JSON body with `{{name}}` tags, per name and locale, that a job renders for its recipients.

Tags are exact: what stands between `{{` and the next `}}` is the name, blanks and all; there is no nesting and no
logic. The rules that a template must meet before it is stored are here too, and those of any JSON that a caller gives
us to keep.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from shared.domain.errors import Invalid

TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)

NAME_CHARACTERS = 255
LOCALE_CHARACTERS = 10
VALUE_BYTES = 64 * 1024
# MongoDB nests documents at most 100 deep, and a job's copy of a template lies a few levels down already.
JSON_DEPTH = 64
INTEGERS = range(-(2**63), 2**63)
# A job's document, which MongoDB lets grow to 16 MB, holds copies of its templates beside what else the job says.
COPIES_BYTES = 8 * 2**20


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


class Repeated:
    """Stands in decoded JSON for the values of a key that an object holds twice."""


def check_template(*, name: str, locale: str, body: Any, defaults: Any) -> None:
    """Apply the rules in the order in which a client expects them to be reported.

    Raises:
        Invalid: `field` names the value, down to the leaf, as in `body.alert.title` or `body.loc-args[2]`.
    """
    check_name(name)
    check_locale(locale)
    check_body(body)
    check_defaults(defaults)


def check_name(name: str) -> None:
    """1 to 255 characters. Raises `Invalid`."""
    _check_length("name", name, NAME_CHARACTERS)


def check_locale(locale: str) -> None:
    """1 to 10 characters. Kept as given, though only one in lower case is ever picked. Raises `Invalid`."""
    _check_length("locale", locale, LOCALE_CHARACTERS)


def check_body(body: Any) -> None:
    """An object with a key or more, in which every `{{` has its `}}`, in texts as in keys. Raises `Invalid`."""
    if not isinstance(body, dict) or not body:
        raise Invalid("invalid body: an object with at least one key is needed", field="body", value=body)
    check_json("body", body)
    for path, leaf in _scalars("body", body):
        if isinstance(leaf, str) and unterminated(leaf):
            raise Invalid(f"invalid body: {path} opens a tag with {{{{ and never closes it", field=path, value=leaf)


def check_defaults(defaults: Any) -> None:
    """An object. Raises `Invalid`."""
    if not isinstance(defaults, dict):
        raise Invalid("invalid defaults: an object is needed", field="defaults", value=defaults)
    check_json("defaults", defaults)


def check_json(field: str, value: Any) -> None:
    """Whether decoded JSON from a caller can be kept and sent as it is; `field` is its name in the request.

    Texts and keys are free of NUL and at most 64 KiB each, numbers fit in 64 bits, no object holds a key twice
    (`Repeated`), nesting ends at `JSON_DEPTH`.

    Raises:
        Invalid: `field` is the path of what breaks a rule; the reason begins with `invalid <field>`.
    """
    for path, leaf in _scalars(field, value):
        fault = _fault(leaf)
        if fault:
            raise Invalid(f"invalid {field}: {path} {fault}", field=path)


def check_copies(size: int) -> None:
    """Whether a job can copy templates whose bodies and defaults have this many bytes of JSON. Raises `Invalid`."""
    if size > COPIES_BYTES:
        rule = f"the templates of a job, in all locales, may have {COPIES_BYTES} bytes together"
        raise Invalid(f"invalid template: {rule}, not {size}", field="template")


def unterminated(text: str) -> bool:
    """Whether a `{{` has no `}}` after it."""
    return "{{" in TAG.sub(" ", text)


def _check_length(field: str, text: str, most: int) -> None:
    if not 1 <= len(text) <= most:
        raise Invalid(f"invalid {field}: 1 to {most} characters are needed", field=field, value=text)
    check_json(field, text)


def _fault(leaf: Any) -> str:
    match leaf:
        case bool() | None:
            return ""
        case int():
            return "" if leaf in INTEGERS else "does not fit in 64 bits"
        case float():
            return "" if math.isfinite(leaf) else "does not fit in 64 bits"
        case Repeated():
            return "stands twice in one object"
        case str():
            return _text_fault(leaf)
        case _:
            return ""


def _text_fault(text: str) -> str:
    if "\0" in text:
        return "holds a NUL character"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    return "" if size <= VALUE_BYTES else f"is longer than {VALUE_BYTES} bytes"


def _scalars(path: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if depth > JSON_DEPTH:
        root = re.split(r"[.\[]", path, maxsplit=1)[0]
        raise Invalid(f"invalid {root}: nested more than {JSON_DEPTH} deep", field=root)
    match value:
        case dict():
            for key, inner in value.items():
                yield f"{path}.{key}", key
                yield from _scalars(f"{path}.{key}", inner, depth + 1)
        case list():
            for index, inner in enumerate(value):
                yield from _scalars(f"{path}[{index}]", inner, depth + 1)
        case _:
            yield path, value
