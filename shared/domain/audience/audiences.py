"""Audiences: the name of an app's table, and the meaning of a job's filters.

A filter's key names a column, and its value is compared with that column, as in Marathon. A comma list accepts any of
its parts, without surrounding blanks; a key that contains `NOT` excludes all of them. Several keys must all hold. A
NULL column never matches, not even `NOT`. Locales and regions are compared without regard to case, and `_` in them is
`-`; a withdrawn code of a language, such as `iw`, is its successor.

Values are data: only an app name that passed its rule becomes part of a statement's text.
"""

from collections.abc import Mapping

from msgspec import Struct

from shared.domain.accounts.apps import check_app_name
from shared.domain.audience.column_names import strip_unseen
from shared.domain.audience.zones import REST, texts
from shared.domain.errors import Invalid

NEGATION = "NOT"
MAX_FILTERS = 64
MAX_VALUE_BYTES = 64 * 1024
MAX_COLUMN_BYTES = 63  # PostgreSQL cuts longer names, and could then find another column

LOCALE = "locale"

_FOLDED = frozenset({LOCALE, "region"})
_SUCCESSORS = {"in": "id", "iw": "he", "ji": "yi", "jw": "jv", "mo": "ro"}  # of IANA's registry (RFC 5646, 2.2.1)
_WITHDRAWN = {successor: code for code, successor in _SUCCESSORS.items()}

BEGINNING = -(2**63)
"""The `after` of a job's first range: below every possible seq_id."""


class Condition(Struct, frozen=True):
    """`column` equals one of `values`, or none of them if `negated`; NULL does neither, but is kept with `or_null`. If
    `folded`, both sides are compared without case and surrounding blanks, and with `-` for `_`. `field` is its place in
    the request."""

    column: str
    values: tuple[str, ...]
    negated: bool
    field: str
    or_null: bool = False
    folded: bool = False


def table_name(app_name: str, service: str) -> str:
    """The push table of an app and a service. Names that differ only in case share it."""
    check_app_name(app_name)
    return f"{app_name.lower()}_{service}"


def normal_locale(written: str) -> str:
    """The locale for comparisons: `pt_BR` and ` PT-br` are `pt-br`, `iw_IL` is `he-il`."""
    language, dash, rest = strip_unseen(written).lower().replace("_", "-").partition("-")
    return f"{_SUCCESSORS.get(language, language)}{dash}{rest}"


def conditions(filters: Mapping[str, object]) -> tuple[Condition, ...]:
    """The conditions of the filters, in the order of their keys. All must hold; without filters everybody is kept."""
    if len(filters) > MAX_FILTERS:
        raise Invalid(f"at most {MAX_FILTERS} filters", field="filters")
    return tuple(condition(key, filters[key]) for key in sorted(filters))


def condition(key: str, value: object) -> Condition:
    """The column of a negated key is its rest after the characters N, O and T are stripped from both ends, so
    `NOTlocale` means `locale`."""
    field = f"filters.{key}"
    negated = NEGATION in key
    column = key.strip(NEGATION) if negated else key
    if not column:
        raise Invalid("a filter needs the name of a column", field=field)
    if not isinstance(value, str):
        raise Invalid("a filter's value is a string", field=field, value=value)
    _check_text(column, "the name of a column", MAX_COLUMN_BYTES, field)
    _check_text(value, "a filter's value", MAX_VALUE_BYTES, field)
    parts = tuple(part.strip() for part in value.split(","))
    if column == LOCALE:
        parts = tuple(spelling for part in parts for spelling in _spellings(part))
    return Condition(column, parts, negated, field, folded=column in _FOLDED)


def _spellings(locale: str) -> tuple[str, ...]:
    """The locale, or both codes of a language that has a withdrawn one, because columns contain either."""
    language, dash, rest = normal_locale(locale).partition("-")
    return (f"{language}{dash}{rest}", f"{_WITHDRAWN[language]}{dash}{rest}") if language in _WITHDRAWN else (locale,)


def zone_condition(zone: str) -> tuple[Condition, ...]:
    """The conditions of a zone's users; none without a zone."""
    if not zone:
        return ()
    others = zone == REST
    return (Condition("tz", texts(zone), negated=others, field="localized", or_null=others),)


def _check_text(text: str, what: str, limit: int, field: str) -> None:
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise Invalid(f"{what} must be valid Unicode", field=field) from None
    if length > limit:
        raise Invalid(f"{what} has at most {limit} bytes", field=field)
    if "\0" in text:
        raise Invalid(f"{what} must not contain NUL", field=field)
